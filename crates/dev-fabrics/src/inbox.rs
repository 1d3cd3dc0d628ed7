//! Requests to the thread of a device, which also waits for its target.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, Read, Write};
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{self, TryRecvError};
use std::time::Duration;

/// The handle for requests to the thread.
#[derive(Debug)]
pub(crate) struct Asker<T> {
    // Dropped in this order: when the thread sees the end of the bell, it finds no other handle.
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
        // The thread runs as long as a handle exists.
        let _ = self.requests.send(request);
        // A full bell is already readable.
        let _ = (&*self.bell).write(&[0]);
    }
}

/// The receiving end of the thread.
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

    /// Waits for a request, or for `other` to become readable, at most for `patience`. Returns whether `other` is
    /// readable.
    pub(crate) fn wait(&self, other: Option<BorrowedFd<'_>>, patience: Duration) -> bool {
        let span =
            Timespec { tv_sec: patience.as_secs() as i64, tv_nsec: patience.subsec_nanos().into() };
        let bell = PollFd::new(&self.bell, PollFlags::IN);
        let mut fds = vec![bell];
        fds.extend(other.map(|other| PollFd::from_borrowed_fd(other, PollFlags::IN)));
        // After an interrupted wait, the caller waits again.
        let _ = poll(&mut fds, Some(&span));
        let heard = fds.get(1).is_some_and(|other| !other.revents().is_empty());
        if !fds[0].revents().is_empty() {
            let _ = (&self.bell).read(&mut [0; 64]);
        }
        heard
    }
}
