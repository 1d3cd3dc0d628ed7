//! The requests of a connection between their arrival and the departure of their replies.

use crate::admit::Work;
use crate::limits::REQUESTS_MAX;
use crate::wire::Code;

/// Names a request of a connection while it lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotIndex(pub(crate) u16);

/// Whether all I/Os of a request were made.
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
    /// The first failure, with words for the client's user.
    pub(crate) failure: Option<(Code, &'static str)>,
    /// Bytes of a read that has to be sent in order that are in the reply queue.
    pub(crate) ordered: u32,
}

impl Slot {
    /// First byte after the request's range.
    pub(crate) const fn end(&self) -> u64 {
        self.offset + self.length as u64
    }

    /// True when everything that will be done has been done.
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

    /// True when a request can begin.
    pub(crate) fn has_room(&self) -> bool {
        !self.free.is_empty()
    }

    /// Begins a request. The caller has asked for room.
    pub(crate) fn begin(&mut self, slot: Slot) -> SlotIndex {
        let index = self.free.pop().expect("a request begins only where there is room");
        self.slots[usize::from(index)] = Some(slot);
        SlotIndex(index)
    }

    /// The request, which has begun and not ended.
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
