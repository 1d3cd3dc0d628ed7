//! The common parts of the three ways of delivery.

use std::future::Future;
use std::net::IpAddr;
use std::sync::Arc;

use crate::clock::{Clock, within};
use crate::error::Failure;
use crate::limits::Limits;
use crate::notice::Message;
use crate::program::Programs;
use crate::spec::Way;

/// The addresses that count as this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Inside {
    /// The addresses of the loopback interface.
    Loopback,
    /// No address. Tests use this, because their servers all listen on the loopback interface.
    #[cfg(test)]
    Nothing,
}

/// The parameters of every attempt, in addition to the event.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    pub host: String,
    pub clock: Arc<dyn Clock>,
    pub limits: Limits,
    /// Certificates that are trusted in addition to those of the host.
    pub roots: Vec<Vec<u8>>,
    pub programs: Programs,
    pub inside: Inside,
}

impl Setting {
    /// Runs `work` within the limit for a connection.
    pub(crate) async fn connected<T>(
        &self,
        work: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        within(&*self.clock, self.limits.connect, "connecting", work).await
    }

    /// Runs `work` within the limit for one attempt.
    pub(crate) async fn in_time<T>(
        &self,
        work: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        within(&*self.clock, self.limits.total, "it", work).await
    }

    pub(crate) fn is_inside(&self, address: IpAddr) -> bool {
        match self.inside {
            Inside::Loopback => address.is_loopback(),
            #[cfg(test)]
            Inside::Nothing => false,
        }
    }
}

impl Way {
    /// Makes one attempt.
    pub(crate) async fn tell(&self, message: &Message, setting: &Setting) -> Result<(), Failure> {
        match self {
            Self::Webhook(webhook) => webhook.tell(message, setting).await,
            Self::Mail(mail) => mail.tell(message, setting).await,
            Self::Exec(program) => program.tell(message, setting).await,
        }
    }
}
