//! How the thread of a device is asked for something while it also listens to its target.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, Read, Write};
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{self, TryRecvError};
use std::time::Duration;

/// Asks the thread.
#[derive(Debug)]
pub(crate) struct Asker<T> {
    // Dropped in this order: when the thread hears the bell end, it finds that no asker is left.
    requests: mpsc::Sender<T>,
    bell: Arc<UnixStream>,
}

impl<T> Clone for Asker<T> {
    fn clone(&self) -> Self {
        Self { requests: self.requests.clone(), bell: Arc::clone(&self.bell) }
    }
}

impl<T> Asker<T> {
    pub(crate) fn ask(&self, request: T) {
        // The thread is there as long as an asker is.
        let _ = self.requests.send(request);
        // A bell that takes no more rings already.
        let _ = (&*self.bell).write(&[0]);
    }
}

/// The thread's end.
#[derive(Debug)]
pub(crate) struct Inbox<T> {
    requests: mpsc::Receiver<T>,
    bell: UnixStream,
}

impl<T> Inbox<T> {
    pub(crate) fn open() -> io::Result<(Asker<T>, Self)> {
        let (sender, requests) = mpsc::channel();
        let (bell, rope) = UnixStream::pair()?;
        bell.set_nonblocking(true)?;
        rope.set_nonblocking(true)?;
        Ok((Asker { requests: sender, bell: Arc::new(rope) }, Self { requests, bell }))
    }

    pub(crate) fn next(&self) -> Result<T, TryRecvError> {
        self.requests.try_recv()
    }

    /// Waits for a request, or for `other`, but not for longer than `patience`. True when there is something to hear of
    /// the other.
    pub(crate) fn wait(&self, other: Option<BorrowedFd<'_>>, patience: Duration) -> bool {
        let span =
            Timespec { tv_sec: patience.as_secs() as i64, tv_nsec: patience.subsec_nanos().into() };
        let bell = PollFd::new(&self.bell, PollFlags::IN);
        let mut fds = vec![bell];
        fds.extend(other.map(|other| PollFd::from_borrowed_fd(other, PollFlags::IN)));
        // A wait that is cut short is followed by the next one.
        let _ = poll(&mut fds, Some(&span));
        let heard = fds.get(1).is_some_and(|other| !other.revents().is_empty());
        if !fds[0].revents().is_empty() {
            let _ = (&self.bell).read(&mut [0; 64]);
        }
        heard
    }
}
