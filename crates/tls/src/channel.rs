//! Data of a connection after the handshake: into records and out of them, in buffers that are there from the beginning
//! (RFC 8446, sections 4.6 and 5).

use crate::agreement::failure;
use crate::error::{Alert, TlsError};
use crate::ffi;
use crate::limits::{
    BLOCKS_PER_KEY_MAX, CONTROL_RECORD_PRICE, CREDIT_MAX, DATA_BYTES_MAX, MESSAGE_PRICE,
    READS_PER_TURN, RECORDS_PER_SEND, RECORDS_PER_TURN,
};
use crate::pipe::Pipe;
use openssl::ssl::{ErrorCode, SslStream};
use std::io::{IoSlice, IoSliceMut};

/// Why nothing was received or sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure<E> {
    /// An error of the caller's `receive` or `send`.
    Socket(E),
    /// An error of TLS.
    Tls(TlsError),
    /// This turn has done its share of work; the next one continues.
    Paused,
}

impl<E> From<TlsError> for Failure<E> {
    fn from(error: TlsError) -> Self {
        Self::Tls(error)
    }
}

/// Whether something may still come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    Open,
    /// The other side has said that it sends nothing further.
    Ended,
    /// It did what it must not, or was cut off.
    Failed(TlsError),
}

/// A record that was sealed: where it ends in the output, and its data.
#[derive(Clone, Copy, Default)]
struct Sealed {
    end: usize,
    data: usize,
}

/// Both directions of a connection.
pub struct Channel {
    stream: SslStream<Pipe>,
    life: Life,
    /// Reads of the socket that this turn may still make.
    reads_left: usize,
    /// The credit of the peer, at most [`CREDIT_MAX`].
    credit: usize,
    /// Data of one record.
    gathered: Box<[u8]>,
    sealed: [Sealed; RECORDS_PER_SEND],
    records: usize,
    /// Records of them whose data counts as sent.
    counted: usize,
    /// Blocks of 16 bytes that were sealed with the keys that are used.
    blocks: u64,
    /// Other keys are wanted for what is sent.
    owes_update: bool,
}

impl Channel {
    /// A channel of a completed handshake, in its first [turn](Self::begin_turn).
    pub(crate) fn new(stream: SslStream<Pipe>) -> Self {
        let mut channel = Self {
            stream,
            life: Life::Open,
            reads_left: 0,
            credit: CREDIT_MAX,
            gathered: vec![0; DATA_BYTES_MAX].into_boxed_slice(),
            sealed: [Sealed::default(); RECORDS_PER_SEND],
            records: 0,
            counted: 0,
            blocks: 0,
            owes_update: false,
        };
        channel.begin_turn();
        // The records until now belong to the handshake.
        channel.stream.get_mut().take_read();
        channel
    }

    /// Has what is sent from here on go with other keys, sooner than their bound demands.
    pub const fn change_keys(&mut self) {
        self.owes_update = true;
    }

    /// Begins a turn. In one turn a peer gets a limited share of this thread, whatever it sends: [`RECORDS_PER_TURN`]
    /// and [`READS_PER_TURN`].
    pub fn begin_turn(&mut self) {
        self.reads_left = READS_PER_TURN;
        self.stream.get_mut().allow(RECORDS_PER_TURN);
    }

    /// True if this turn receives nothing further, although there may be more.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.life == Life::Open && (self.reads_left == 0 || self.stream.get_ref().is_spent())
    }

    /// Whether there is something to receive of what came, or the end, or perhaps in the next turn.
    pub(crate) fn has_more(&self) -> bool {
        self.life != Life::Open
            || self.is_paused()
            || self.stream.get_ref().has_unread()
            || self.stream.ssl().pending() > 0
    }

    /// Receives into slices until they are full, or `receive`, which gets the room for what comes, has nothing more, or
    /// the [turn](Self::begin_turn) has done its share. Returns how many bytes there are, zero when the other side has
    /// ended its part.
    ///
    /// # Errors
    /// Those of `receive`, and of TLS, after which there is nothing more; [`Failure::Paused`] if the next turn
    /// continues.
    pub fn receive<E>(
        &mut self,
        into: &mut [IoSliceMut<'_>],
        mut receive: impl FnMut(&mut [u8]) -> Result<usize, E>,
    ) -> Result<usize, Failure<E>> {
        let mut count = 0;
        for slice in into {
            let mut at = 0;
            while at < slice.len() {
                match self.receive_some(&mut slice[at..], &mut receive) {
                    Ok(0) => return Ok(count + at),
                    Ok(bytes) => at += bytes,
                    Err(_) if count + at > 0 => return Ok(count + at),
                    Err(error) => return Err(error),
                }
            }
            count += at;
        }
        Ok(count)
    }

    /// Receives data of one record into a place that is not empty; zero bytes when there is an end.
    fn receive_some<E>(
        &mut self,
        place: &mut [u8],
        receive: &mut impl FnMut(&mut [u8]) -> Result<usize, E>,
    ) -> Result<usize, Failure<E>> {
        loop {
            match self.life {
                Life::Open => {}
                Life::Ended => return Ok(0),
                Life::Failed(error) => return Err(error.into()),
            }
            let result = self.stream.ssl_read(place);
            let (records, ran_out) = self.stream.get_mut().take_read();
            match result {
                Ok(bytes) => {
                    self.count_records(records, 1, 0);
                    return Ok(bytes);
                }
                Err(error) if error.code() == ErrorCode::WANT_READ => {
                    // OpenSSL returns after each message without data, of which one record may have many.
                    self.count_records(records, 0, (!ran_out).into());
                    if !ran_out {
                        continue;
                    }
                }
                Err(error) if error.code() == ErrorCode::ZERO_RETURN => {
                    self.life = Life::Ended;
                    continue;
                }
                Err(error) => {
                    self.life = Life::Failed(failure(self.stream.ssl(), &error));
                    continue;
                }
            }
            if self.life != Life::Open {
                continue;
            }
            if self.is_paused() {
                return Err(Failure::Paused);
            }
            self.reads_left -= 1;
            let pipe = self.stream.get_mut();
            match receive(pipe.room()) {
                Ok(0) => self.life = Life::Failed(TlsError::Truncated),
                Ok(bytes) => pipe.came(bytes),
                Err(error) => return Err(Failure::Socket(error)),
            }
        }
    }

    /// Counts the records that OpenSSL has read, of which `data` held data, and `messages` without data. A peer that
    /// sends too many records or messages without data has failed.
    fn count_records(&mut self, records: usize, data: usize, messages: usize) {
        // Without a record, the data are the rest of an earlier one.
        let data = data.min(records);
        let control_records = records - data;
        let further = messages.saturating_sub(control_records);
        let price = control_records * CONTROL_RECORD_PRICE + further * MESSAGE_PRICE;
        match (self.credit + data).checked_sub(price) {
            Some(credit) => self.credit = credit.min(CREDIT_MAX),
            None => self.life = Life::Failed(TlsError::Breach(Alert::UnexpectedMessage)),
        }
    }

    /// Sends bytes of `parts` by `send`, and returns how many went out in whole records. A caller that gets fewer than
    /// it passed calls again with the same bytes from there on: some may be sealed already, whatever is in `parts`
    /// then.
    ///
    /// # Errors
    /// Those of `send`, when nothing that counts went out, and of TLS.
    pub fn send<E>(
        &mut self,
        parts: &[IoSlice<'_>],
        mut send: impl FnMut(&[u8]) -> Result<usize, E>,
    ) -> Result<usize, Failure<E>> {
        if self.counted == self.records {
            self.seal(parts)?;
        }
        let pipe = self.stream.get_mut();
        while !pipe.unsent().is_empty() {
            match send(pipe.unsent()) {
                Ok(bytes) => pipe.went(bytes),
                Err(error) => {
                    return match self.count() {
                        0 => Err(Failure::Socket(error)),
                        bytes => Ok(bytes),
                    };
                }
            }
        }
        Ok(self.count())
    }

    /// Data of the records that have gone out and were not counted.
    fn count(&mut self) -> usize {
        let gone = self.stream.get_ref().place().start;
        let mut data = 0;
        while self.counted < self.records && self.sealed[self.counted].end <= gone {
            data += self.sealed[self.counted].data;
            self.counted += 1;
        }
        data
    }

    /// Seals as much as there are records for. All data that was sealed before has gone out.
    fn seal(&mut self, parts: &[IoSlice<'_>]) -> Result<(), TlsError> {
        self.stream.get_mut().make_room();
        (self.records, self.counted) = (0, 0);
        if self.owes_update || self.blocks >= BLOCKS_PER_KEY_MAX {
            ffi::change_keys(&mut self.stream, false)?;
            (self.owes_update, self.blocks) = (false, 0);
        }
        let mut parts = parts.iter().map(|part| &**part).filter(|part| !part.is_empty());
        let mut part: &[u8] = &[];
        while self.records < RECORDS_PER_SEND {
            let mut count = 0;
            while count < DATA_BYTES_MAX {
                if part.is_empty() {
                    let Some(next) = parts.next() else { break };
                    part = next;
                }
                let (now, later) = part.split_at(part.len().min(DATA_BYTES_MAX - count));
                self.gathered[count..count + now.len()].copy_from_slice(now);
                count += now.len();
                part = later;
            }
            if count == 0 {
                break;
            }
            let written = self.stream.ssl_write(&self.gathered[..count]);
            written.map_err(|error| failure(self.stream.ssl(), &error))?;
            self.blocks += count.div_ceil(16) as u64;
            let end = self.stream.get_ref().place().end;
            self.sealed[self.records] = Sealed { end, data: count };
            self.records += 1;
        }
        Ok(())
    }

    /// Sends the other side, in one try, the end of the data or the alert. Nothing is sent after it. Where records of
    /// data are still to be sent, the other side could not find where the next begins, and neither is sent.
    pub fn say_farewell<E>(&mut self, send: impl FnOnce(&[u8]) -> Result<usize, E>) {
        match self.life {
            Life::Open | Life::Ended if self.stream.get_ref().unsent().is_empty() => {
                self.stream.get_mut().make_room();
                // Where it cannot say so, the other side sees the connection end.
                let _ = self.stream.shutdown();
            }
            // OpenSSL has said so. Data in front of it is no longer sent, and without that the other side cannot
            // decrypt it.
            Life::Failed(TlsError::Breach(_)) if self.counted == self.records => {}
            Life::Open | Life::Ended | Life::Failed(_) => return,
        }
        let unsent = self.stream.get_ref().unsent();
        if !unsent.is_empty() {
            let _ = send(unsent);
        }
    }
}

#[cfg(test)]
impl Channel {
    /// Announces other keys at once, `count` times, and asks for the other side's; what is to be sent.
    pub(crate) fn updates_for_test(&mut self, count: usize) -> Vec<u8> {
        let mut wire = Vec::new();
        for _ in 0..count {
            ffi::change_keys(&mut self.stream, true).expect("it is open");
            self.stream.do_handshake().expect("it goes out");
            let pipe = self.stream.get_mut();
            wire.extend(pipe.unsent());
            pipe.went(pipe.unsent().len());
            pipe.make_room();
        }
        wire
    }

    pub(crate) const fn wear_out_for_test(&mut self) {
        self.blocks = BLOCKS_PER_KEY_MAX;
    }
}
