//! Tests that the data path does not allocate: all operations except the construction of a `Code` run with a counting
//! allocator.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use strake_parity::{
    Code, CodeError, Kernel, ParityMut, Recovery, Verdict, accumulate, check, encode,
    first_difference, update,
};

thread_local! {
    /// The allocations of this thread. The test harness allocates on other threads.
    static REQUESTS: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call is passed on unchanged to the system allocator, which upholds the contract; the
// counter is a plain thread-local cell that does not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        REQUESTS.with(|requests| requests.set(requests.get() + 1));
        // SAFETY: the caller upholds the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller upholds the contract of `dealloc`, and all memory is the system's.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn requests() -> usize {
    REQUESTS.with(Cell::get)
}

/// Runs every operation of the data path on a 4+2 stripe.
fn every_operation(
    code: &Code,
    data: &[&[u8]; 4],
    buffers: &mut [[u8; 700]; 4],
) -> Result<(), CodeError> {
    let [p, q, first, second] = buffers;
    encode(code, data, &mut [p, q])?;
    assert_eq!(check(code, data, &[p, q])?, Verdict::Clean);
    let recovery = Recovery::new(code, &[2, 3, 4, 5], &[0, 1])?;
    recovery.apply(&[data[2], data[3], p, q], &mut [first, second])?;
    assert_eq!((first_difference(first, data[0]), first_difference(second, data[1])), (None, None));
    let mut parity = [ParityMut { index: 0, bytes: p }, ParityMut { index: 1, bytes: q }];
    update(code, 1, data[1], data[2], &mut parity)?;
    accumulate(code, 1, data[1], &mut parity)?;
    accumulate(code, 1, data[2], &mut parity)?;
    assert_eq!(check(code, data, &[p, q])?, Verdict::Clean);
    q[699] ^= 1;
    assert_eq!(check(code, data, &[p, q])?, Verdict::OneWrong(5));
    assert!(encode(code, &data[1..], &mut [p, q]).is_err());
    Ok(())
}

#[test]
fn no_operation_allocates() {
    let before = requests();
    drop(std::hint::black_box(Box::new(1_u8)));
    assert_eq!(requests(), before + 1, "the allocator does not count");
    let data = [[1; 700], [2; 700], [3; 700], [0xff; 700]];
    let data = data.each_ref().map(<[u8; 700]>::as_slice);
    let mut buffers = [[9; 700]; 4];
    for kernel in Kernel::available() {
        let before = requests();
        let outcome = Code::new(4, 2)
            .and_then(|code| every_operation(&code.with_kernel(kernel), &data, &mut buffers));
        assert_eq!(requests(), before, "{} allocated", kernel.name());
        assert_eq!(outcome, Ok(()));
    }
}
