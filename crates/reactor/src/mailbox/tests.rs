//! Order, back-pressure and abandonment of mailboxes.

use super::mailbox;
use std::sync::Arc;

#[test]
fn messages_keep_their_order_and_a_full_ring_pushes_back() {
    let (mut sender, mut receiver) = mailbox(3);
    assert_eq!((sender.capacity(), sender.room(), receiver.recv()), (3, 3, None));
    // Go round the ring several times.
    for round in 0..5 {
        for n in 0..3 {
            assert_eq!(sender.send(round * 10 + n), Ok(()));
        }
        assert_eq!(sender.send(99), Err(99));
        assert_eq!((sender.room(), sender.len(), receiver.len()), (0, 3, 3));
        assert_eq!(receiver.recv(), Some(round * 10));
        assert_eq!(sender.send(round * 10 + 3), Ok(()));
        let rest: Vec<_> = std::iter::from_fn(|| receiver.recv()).collect();
        assert_eq!(rest, [1, 2, 3].map(|n| round * 10 + n));
        assert!(receiver.is_empty() && sender.is_empty());
    }
}

#[test]
fn a_sender_sees_that_the_receiver_is_gone() {
    let (mut sender, receiver) = mailbox(2);
    let message = Arc::new(());
    sender.send(Arc::clone(&message)).unwrap();
    assert!(!sender.abandoned());
    drop(receiver);
    assert!(sender.abandoned());
    sender.send(Arc::clone(&message)).unwrap();
    assert!(sender.send(Arc::clone(&message)).is_err(), "the ring is full, abandoned or not");
    drop(sender);
    assert_eq!(Arc::strong_count(&message), 1, "the ring drops what was never received");
}

#[test]
fn a_receiver_still_gets_what_a_dropped_sender_sent() {
    let (mut sender, mut receiver) = mailbox(2);
    sender.send(7).unwrap();
    assert!(!receiver.abandoned());
    drop(sender);
    assert!(receiver.abandoned());
    assert_eq!((receiver.recv(), receiver.recv()), (Some(7), None));
}

#[test]
fn messages_cross_threads_in_order() {
    const COUNT: u64 = 100_000;
    let (mut sender, mut receiver) = mailbox(16);
    let producer = std::thread::spawn(move || {
        for mut n in 0..COUNT {
            while let Err(back) = sender.send(n) {
                n = back;
                std::thread::yield_now();
            }
        }
    });
    let mut expected = 0;
    while expected < COUNT {
        match receiver.recv() {
            Some(n) => {
                assert_eq!(n, expected);
                expected += 1;
            }
            None => std::thread::yield_now(),
        }
    }
    producer.join().unwrap();
    assert!(receiver.abandoned() && receiver.is_empty());
}
