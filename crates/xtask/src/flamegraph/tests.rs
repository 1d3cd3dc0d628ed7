use super::draw::{short, svg};
use super::fold::{Call, busiest, by_crate, crate_of};

const SCRIPT: &str = "\
strake-core-0   11
\t           1 early
\t           2 strake_reactor::core::Core::turn

strake 10
\t           3 main

strake-core-0   12
\t           4 strake_parity::update
\t           5 submit (inlined)
\t           6 <strake_engine::Shard as strake_reactor::core::Poller>::turn
\t           7 strake_reactor::core::Core::turn
\t           8 std::thread::start

strake-core-0   12
\t           6 <strake_engine::Shard as strake_reactor::core::Poller>::turn
\t           9 [unknown]

strake-core-0   12
\t           5 submit (inlined)
\t           9 [unknown]

";

fn tree() -> Call {
    busiest(SCRIPT, "strake-core-0")
}

#[test]
fn the_busiest_thread_is_folded_from_its_turn_on() {
    let tree = tree();
    assert_eq!((tree.count, tree.depth()), (3, 3));
    let shard = &tree.calls["<strake_engine::Shard as strake_reactor::core::Poller>::turn"];
    assert_eq!((tree.calls.len(), shard.count, shard.own()), (2, 2, 1));
    assert_eq!(shard.calls["submit"].calls["strake_parity::update"].own(), 1);
    assert_eq!(tree.calls["submit"].own(), 1, "of which nobody knows who called it");
    assert_eq!(busiest(SCRIPT, "nobody"), Call::default());
    assert_eq!(busiest("", "strake-core-0"), Call::default());
}

#[test]
fn time_belongs_to_the_innermost_crate() {
    assert_eq!(by_crate(&tree()), "elsewhere 33.3 %, strake_engine 33.3 %, strake_parity 33.3 %");
    assert_eq!(
        crate_of("<strake_engine::Shard as strake_reactor::Poller>::turn"),
        Some("strake_engine")
    );
    assert_eq!(crate_of("core::ptr::read"), None);
}

#[test]
fn the_picture_has_every_call_that_is_wide_enough() {
    let picture = svg("G1 <fast>", &tree());
    assert!(picture.contains("G1 &lt;fast&gt;") && picture.contains("3 samples"), "{picture}");
    for text in
        ["<title>submit: 33.3 %</title>", ">Shard::turn</text>", ">strake_parity::update</text>"]
    {
        assert!(picture.contains(text), "{text} is not in {picture}");
    }
    assert_eq!(picture.matches("<g>").count(), 4);
}

#[test]
fn names_are_shortened_to_type_and_function() {
    for (name, expected) in [
        ("<strake_engine::shard::Shard as strake_reactor::Poller>::turn", "Shard::turn"),
        ("strake_load::Flow::send", "Flow::send"),
        ("call_once<core::panic::Assert<()>, ()>", "call_once"),
        ("<alloc::vec::Vec<u8>>::push", "vec::Vec"),
        ("do_syscall_64", "do_syscall_64"),
    ] {
        assert_eq!(short(name), expected, "{name}");
    }
}
