//! Delivery by e-mail.

use super::smtp::{Manner, Said, Server, Tls};
use super::tls::certificate;
use super::{Bench, event, limits};
use crate::spec::HookSpec;
use strake_api::v1::Event;
use strake_wording::{Text, replace, say};

fn mail(server: &str) -> HookSpec {
    HookSpec {
        name: "ops".into(),
        kind: "email".into(),
        target: "Operators <ops@example.org>".into(),
        severity: "info".into(),
        server: server.into(),
        from: "strake@example.org".into(),
    }
}

/// Returns a server with these manners and without TLS, and a bench with a hook to it.
fn hooked(manners: Vec<Manner>) -> (Server, Bench) {
    let (server, bench) = (Server::new(manners), Bench::new());
    bench.alerts.add(mail(&server.url("smtp", ""))).unwrap();
    (server, bench)
}

/// Delivers one event to a server without TLS, and returns the session.
fn letter_of(event: &Event) -> Said {
    let (server, bench) = hooked(vec![Manner::default()]);
    bench.alerts.offer(event);
    let said = server.said();
    bench.hook_when(|hook| hook.delivered == 1);
    said
}

#[test]
fn a_letter_says_what_why_and_what_to_do() {
    let remedy = Text::from(replace("tank", Some(2), "")).parts;
    let said = letter_of(&Event { remedy, ..event(7, "critical") });
    assert!(said.has("EHLO node1"), "{said:?}");
    assert!(
        said.has("MAIL FROM:<strake@example.org>") && said.has("RCPT TO:<ops@example.org>"),
        "{said:?}"
    );
    let (headers, body) = said.letter.split_once("\r\n\r\n").unwrap();
    for header in [
        "Subject: [Strake node1] critical: member 2 failed (7)",
        "To: Operators <ops@example.org>",
        "From: strake@example.org",
        "Message-ID: <strake-7-1790000000000000@node1>",
        "Auto-Submitted: auto-generated",
    ] {
        assert!(headers.lines().any(|line| line == header), "{header} is not in\n{headers}");
    }
    let expected = "What:    member 2 failed (7)\r\n\
                    Why:     the drive answered a write with an error\r\n\
                    Do now:  strake array replace tank --member 2 --with DRIVE\r\n\
                    About:   array/tank\r\n\
                    Machine: node1\r\n\
                    By:      straked\r\n\
                    Time:    2026-09-21 14:13:20 UTC\r\n\
                    \r\n\
                    Event 7 (member_failed, critical). More: strake event list\r\n";
    assert_eq!(body, expected);
}

/// The history: texts of events come from drives and from people. A line break in a text must not start a header,
/// another recipient or the end of the mail.
#[test]
fn no_text_of_an_event_begins_a_line() {
    let evil = "x\r\nBcc: victim@example.org\r\n\r\n.\r\nMAIL FROM:<evil@example.org>\r\n\u{85}Bcc: y@example.org";
    let mut event = event(7, "critical");
    for text in
        [&mut event.kind, &mut event.object, &mut event.what, &mut event.cause, &mut event.actor]
    {
        *text = evil.into();
    }
    event.next_action = evil.into();
    event.remedy = say(evil).parts;
    let said = letter_of(&event);
    assert_eq!(
        said.commands.iter().filter(|c| c.starts_with("MAIL") || c.starts_with("RCPT")).count(),
        2
    );
    let (headers, body) = said.letter.split_once("\r\n\r\n").unwrap();
    let evil =
        |line: &str| line.starts_with("Bcc") || line.starts_with("MAIL") || line.starts_with('.');
    assert!(!headers.lines().any(evil), "{headers}");
    assert!(!body.lines().any(evil), "{body}");
    assert_eq!(said.commands.last().map(String::as_str), Some("QUIT"), "{said:?}");
}

#[test]
fn a_long_text_with_many_alphabets_is_a_letter_too() {
    let mut event = event(7, "critical");
    event.what = "\u{44f}\u{1f600}\u{e9} ".repeat(3000);
    let said = letter_of(&event);
    let (headers, body) = said.letter.split_once("\r\n\r\n").unwrap();
    assert!(said.letter.is_ascii());
    // RFC 5322, section 2.1.1.
    assert!(headers.lines().chain(body.lines()).all(|line| line.len() <= 998), "{headers}");
}

/// Checks that `answer` to the command `word` fails the first session with `why`. If `tries` is 2, a second session
/// delivers; otherwise the delivery fails.
fn check_answer(word: &'static str, answer: &[u8], tries: usize, why: &str) {
    let bad = Manner { answers: [(word, answer.to_vec())].into(), ..Manner::default() };
    let (server, bench) = hooked(vec![bad, Manner::default()]);
    bench.alerts.offer(&event(1, "info"));
    if tries == 2 {
        bench.hand.pass(limits().backoff[0]);
        server.said();
        server.said();
    }
    let hook = bench.hook_when(|hook| hook.delivered + hook.failed == 1);
    assert_eq!((hook.delivered, hook.failed), if tries == 2 { (1, 0) } else { (0, 1) });
    assert!(hook.last_error.contains(why), "{hook:?}");
}

#[test]
fn a_server_that_is_busy_is_asked_again() {
    check_answer("", b"421 too busy\r\n", 2, "too busy");
    check_answer("RCPT", b"450 mailbox is locked\r\n", 2, "mailbox is locked");
    check_answer("DATA", b"451 try later\r\n", 2, "try later");
    check_answer(".", b"452 disk is full\r\n", 2, "disk is full");
}

#[test]
fn a_server_that_refuses_is_not_asked_again() {
    check_answer("", b"554 go away\r\n", 1, "go away");
    check_answer("MAIL", b"550 not from you\r\n", 1, "not from you");
    check_answer("RCPT", b"550-no such\r\n550 user here\r\n", 1, "no such");
    check_answer(".", b"554 spam\r\n", 1, "spam");
}

#[test]
fn garbage_and_answers_without_end_are_no_answers() {
    check_answer("", b"HTTP/1.1 200 OK\r\n\r\n", 2, "greet");
    check_answer("", &[0xff; 100_000], 2, "greet");
    check_answer("EHLO", &b"250-x\r\n".repeat(100_000), 2, "greet");
    check_answer("", &vec![b'2'; 1 << 20], 2, "greet");
}

#[test]
fn a_silent_server_is_given_a_limited_time() {
    let silent = Manner { answers: [("MAIL", Vec::new())].into(), ..Manner::default() };
    let (server, bench) = hooked(vec![silent, Manner::default()]);
    bench.alerts.offer(&event(1, "info"));
    assert!(server.said().has("MAIL"));
    bench.hand.pass(limits().total);
    bench.hand.pass(limits().backoff[0]);
    assert!(server.said().letter.contains("Subject: "));
    let hook = bench.hook_when(|hook| hook.delivered == 1);
    assert!(hook.last_error.contains("longer than 30 s"), "{hook:?}");
}

#[test]
fn the_letter_is_encrypted_when_that_is_offered() {
    for (tls, scheme) in [(Tls::WhenAsked, "smtp"), (Tls::AtOnce, "smtps")] {
        let (root, config) = certificate("127.0.0.1");
        let manner =
            Manner { tls: Some((tls, config)), offers: vec!["AUTH PLAIN"], ..Manner::default() };
        let server = Server::new(vec![manner]);
        let bench = Bench::trusting(vec![root]);
        bench.alerts.add(mail(&server.url(scheme, "me:s3cret@"))).unwrap();
        bench.alerts.offer(&event(1, "info"));
        let said = server.said();
        // "\0me\0s3cret" in base64.
        assert!(said.has("tls AUTH PLAIN AG1lAHMzY3JldA=="), "{said:?}");
        assert!(said.has("tls MAIL") && !said.has("MAIL") && !said.has("AUTH"), "{said:?}");
        assert!(said.letter.contains("Subject: "), "{said:?}");
        bench.hook_when(|hook| hook.delivered == 1);
    }
}

#[test]
fn a_server_that_cannot_show_who_it_is_gets_no_letter() {
    for (tls, scheme) in [(Tls::WhenAsked, "smtp"), (Tls::AtOnce, "smtps")] {
        let (_, config) = certificate("127.0.0.1");
        let (trusted, _) = certificate("127.0.0.1");
        let server = Server::new(vec![Manner { tls: Some((tls, config)), ..Manner::default() }]);
        let bench = Bench::trusting(vec![trusted]);
        bench.alerts.add(mail(&server.url(scheme, "me:s3cret@"))).unwrap();
        bench.alerts.offer(&event(1, "info"));
        for pause in limits().backoff {
            let said = server.said();
            assert!(!said.has("MAIL") && !said.has("AUTH") && !said.has("tls"), "{said:?}");
            bench.hand.pass(pause);
        }
        let hook = bench.hook_when(|hook| hook.failed == 1);
        assert!(hook.last_error.contains("certificate"), "{hook:?}");
    }
}

#[test]
fn a_password_is_never_sent_in_the_clear() {
    let server =
        Server::new(vec![Manner { offers: vec!["AUTH PLAIN LOGIN"], ..Manner::default() }]);
    let bench = Bench::new();
    bench.alerts.add(mail(&server.url("smtp", "me:s3cret@"))).unwrap();
    bench.alerts.offer(&event(1, "info"));
    let said = server.said();
    assert!(!said.has("AUTH") && !said.has("MAIL"), "{said:?}");
    let hook = bench.hook_when(|hook| hook.failed == 1);
    assert!(hook.last_error.contains("offers no encryption"), "{hook:?}");
}

#[test]
fn a_wrong_password_is_final_and_not_shown() {
    let (root, config) = certificate("127.0.0.1");
    let server = Server::new(vec![Manner {
        tls: Some((Tls::AtOnce, config)),
        offers: vec!["AUTH PLAIN"],
        answers: [("AUTH", b"535 wrong password\r\n".to_vec())].into(),
    }]);
    let bench = Bench::trusting(vec![root]);
    bench.alerts.add(mail(&server.url("smtps", "me:s3cret@"))).unwrap();
    let error = bench.alerts.test("ops").unwrap_err();
    assert!(error.what.contains("log in") && error.what.contains("wrong password"), "{error}");
    assert!(!error.what.contains("s3cret") && !error.what.contains("AG1l"), "{error}");
}
