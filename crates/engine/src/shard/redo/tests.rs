//! Tests of the pages of the redo log, and of the order in which tasks and small writes get them.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use strake_block::{BufMut, BufPool};
use strake_ondisk::{Consistency, REDO_HEADER_BYTES};
use strake_reactor::{Scheduler, Tasks};
use strake_units::Uuid;

use super::{RecordOutcome, Redo, end_turn, page, turn};
use crate::roll::Roll;

const PAYLOAD: usize = 4096;

/// Returns a redo log with one page.
fn redo(scheduler: &Scheduler) -> Redo {
    let roll = Roll {
        array: Uuid([1; 16]),
        epoch: Uuid([2; 16]),
        generation: 1,
        consistency: Consistency::Safe,
        members: Vec::new(),
        replacement: None,
    };
    let pages = BufPool::new(1, REDO_HEADER_BYTES);
    Redo::new(scheduler, Arc::new(roll), (0, 1), PAYLOAD, 1, Some(pages))
}

#[test]
fn a_page_that_a_drive_keeps_is_replaced_until_it_comes_back() {
    let mut redo = redo(&Scheduler::new(1));
    let (entry, page) = redo.place_now(PAYLOAD).expect("all is free");
    let (address, page) = (page.address(), page.freeze());
    let kept = page.clone();
    redo.give_page(page);
    redo.recorded(entry, RecordOutcome::Failed);
    assert!(redo.is_idle(), "another page replaces the page");
    let other = BufMut::alone(REDO_HEADER_BYTES).freeze();
    assert!(redo.take_late_page(other).is_some(), "it is no page");
    assert!(redo.take_late_page(kept).is_none());
    let (_, page) = redo.place_now(PAYLOAD).expect("the record has ended");
    assert_eq!(page.address(), address, "the page itself");
    assert!(redo.place_now(PAYLOAD).is_none(), "there is one page");
}

/// Checks that small writes get no space while `wait` runs in a task, although a page and space are free.
fn check_order<F: Future<Output = ()> + 'static>(
    wait: impl FnOnce(Rc<RefCell<Redo>>, Rc<Cell<bool>>) -> F,
) {
    let scheduler = Scheduler::new(1);
    let redo = Rc::new(RefCell::new(redo(&scheduler)));
    let mut tasks: Tasks<Pin<Box<dyn Future<Output = ()>>>> = Tasks::new(scheduler);
    let (entry, only) = redo.borrow_mut().place_now(PAYLOAD).expect("all is free");
    let go_on = Rc::new(Cell::new(false));
    let task = tasks.spawn(Box::pin(wait(Rc::clone(&redo), Rc::clone(&go_on))));
    let task = task.ok().expect("there is room");
    tasks.run(1);
    redo.borrow_mut().give_page(only.freeze());
    redo.borrow_mut().recorded(entry, RecordOutcome::Failed);
    assert!(!redo.borrow().has_room(PAYLOAD));
    assert!(redo.borrow_mut().place_now(PAYLOAD).is_none(), "a task waits");
    go_on.set(true);
    tasks.scheduler().wake(task);
    tasks.run(1);
    assert_eq!(tasks.live(), 0, "the task has ended");
    assert!(redo.borrow().has_room(PAYLOAD));
    assert!(redo.borrow_mut().place_now(PAYLOAD).is_some());
}

#[test]
fn small_writes_do_not_overtake_a_task_that_waits_for_a_page() {
    check_order(|redo, _| async move {
        let page = page(&redo, || false).await.expect("the array serves");
        redo.borrow_mut().give_page(page.freeze());
    });
}

#[test]
fn small_writes_do_not_overtake_a_task_that_waits_for_space() {
    check_order(|redo, go_on| async move {
        assert!(turn(&redo, || false).await);
        poll_fn(|_| if go_on.get() { Poll::Ready(()) } else { Poll::Pending }).await;
        end_turn(&redo);
    });
}
