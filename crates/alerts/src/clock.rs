//! Time as an argument, so that tests can set it.

use std::fmt::Debug;
use std::future::Future;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::{Duration, Instant};

use crate::error::Failure;

/// A sleep that can be dropped before it ends.
pub type Sleep = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The source of time for all waits of this crate.
pub trait Clock: Debug + Send + Sync {
    /// Returns the time since a fixed moment in the past. It never decreases.
    fn now(&self) -> Duration;

    /// Sleeps until `now` has increased by `time` since this call.
    fn sleep(&self, time: Duration) -> Sleep;
}

/// The monotonic clock of the host.
#[derive(Debug)]
pub struct SystemClock {
    start: Instant,
}

impl Default for SystemClock {
    fn default() -> Self {
        Self { start: Instant::now() }
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn sleep(&self, time: Duration) -> Sleep {
        Box::pin(async move { tokio::time::sleep(time).await })
    }
}

/// Runs `work`, which is dropped if it takes longer than `limit`.
pub(crate) async fn within<T>(
    clock: &dyn Clock,
    limit: Duration,
    doing: &str,
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let mut late = clock.sleep(limit);
    let mut work = pin!(work);
    std::future::poll_fn(|context| {
        if let Poll::Ready(done) = work.as_mut().poll(context) {
            return Poll::Ready(done);
        }
        late.as_mut().poll(context).map(|()| {
            Err(Failure::passing(format!("{doing} took longer than {} s", limit.as_secs_f32())))
        })
    })
    .await
}
