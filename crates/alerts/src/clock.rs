//! Time, as an argument: tests turn the hands themselves.

use std::fmt::Debug;
use std::future::Future;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::{Duration, Instant};

use crate::error::Failure;

/// A sleep that can be dropped before it is over.
pub type Sleep = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Where all waiting of this crate comes from.
pub trait Clock: Debug + Send + Sync {
    /// Time since some moment in the past; never goes back.
    fn now(&self) -> Duration;

    /// Is over once `now` is later by `time` than when this was called.
    fn sleep(&self, time: Duration) -> Sleep;
}

/// The machine's monotonic clock.
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

/// `work`, unless it takes longer than `limit`; it is dropped then.
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
