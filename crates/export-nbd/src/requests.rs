//! The requests of a connection, from their arrival to the end of their replies.

use crate::admit::Work;
use crate::limits::REQUESTS_MAX;
use crate::wire::Code;

/// Identifies a request of a connection until the request ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotIndex(pub(crate) u16);

/// Whether all I/Os of a request were created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Issued {
    /// More will come.
    Partly,
    /// No more will come.
    Wholly,
}

/// One request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    pub(crate) cookie: u64,
    pub(crate) command: u16,
    pub(crate) offset: u64,
    pub(crate) length: u32,
    pub(crate) work: Work,
    pub(crate) issued: Issued,
    /// I/Os at the device or waiting for room in its queue.
    pub(crate) outstanding: u32,
    /// The first failure, with a text for the user of the client.
    pub(crate) failure: Option<(Code, &'static str)>,
    /// For a read that must be sent in order: the number of its bytes in the reply queue.
    pub(crate) ordered: u32,
}

impl Slot {
    /// Returns the first byte after the range of the request.
    pub(crate) const fn end(&self) -> u64 {
        self.offset + self.length as u64
    }

    /// True if all I/Os of the request were created and have completed.
    pub(crate) fn is_over(&self) -> bool {
        self.outstanding == 0 && self.issued == Issued::Wholly
    }
}

/// A fixed number of slots.
pub(crate) struct Requests {
    slots: Box<[Option<Slot>]>,
    free: Vec<u16>,
}

impl Requests {
    pub(crate) fn new() -> Self {
        let count = u16::try_from(REQUESTS_MAX).expect("slots are numbered with 16 bits");
        Self { slots: vec![None; REQUESTS_MAX].into(), free: (0..count).rev().collect() }
    }

    /// True if a request can start.
    pub(crate) fn has_room(&self) -> bool {
        !self.free.is_empty()
    }

    /// Starts a request. The caller has checked that a slot is free.
    pub(crate) fn begin(&mut self, slot: Slot) -> SlotIndex {
        let index = self.free.pop().expect("a request begins only where there is room");
        self.slots[usize::from(index)] = Some(slot);
        SlotIndex(index)
    }

    /// Returns a request that has started and not ended.
    pub(crate) fn get(&mut self, index: SlotIndex) -> &mut Slot {
        self.slots[usize::from(index.0)].as_mut().expect("a slot in use holds a request")
    }

    /// Ends a request, after its reply was sent.
    pub(crate) fn end(&mut self, index: SlotIndex) {
        let ended = self.slots[usize::from(index.0)].take();
        assert!(ended.is_some(), "a request ended twice");
        self.free.push(index.0);
    }
}
