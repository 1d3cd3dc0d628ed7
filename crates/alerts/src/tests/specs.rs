//! Tests of accepted and refused specifications.

use super::{Bench, webhook};
use crate::alerts::Added;
use crate::error::AlertErrorKind;
use crate::limits::HOOKS_MAX;
use crate::spec::HookSpec;

fn spec(kind: &str, target: &str) -> HookSpec {
    HookSpec { name: "ops".into(), kind: kind.into(), target: target.into(), ..HookSpec::default() }
}

fn mail(target: &str, from: &str, server: &str) -> HookSpec {
    HookSpec { from: from.into(), server: server.into(), ..spec("email", target) }
}

/// Checks that `spec` is refused, that the error contains `why` and no secret, and that no hook was added.
fn check_refused(spec: HookSpec, why: &str) {
    let bench = Bench::new();
    let error = bench.alerts.add(spec).unwrap_err();
    assert_eq!(error.kind, AlertErrorKind::Usage);
    assert!(error.what.contains(why), "{error}");
    assert!(!error.what.contains("s3cret"), "{error}");
    assert_eq!(bench.alerts.list(), []);
}

#[test]
fn a_hook_that_makes_no_sense_is_refused() {
    let good = webhook("http://example.org/");
    for name in ["", "two words", "a/b", "a\nb", &"x".repeat(100)] {
        check_refused(HookSpec { name: name.into(), ..good.clone() }, "choose another name");
    }
    check_refused(HookSpec { severity: "bad".into(), ..good.clone() }, "info, warning or critical");
    check_refused(HookSpec { from: "a@example.org".into(), ..good.clone() }, "kind email only");
    check_refused(HookSpec { server: "smtp://x".into(), ..good }, "kind email only");
    check_refused(spec("pager", "x"), "webhook, email or exec");
}

#[test]
fn a_mail_address_that_makes_no_sense_is_refused() {
    let ok = "ops@example.org";
    for bad in [
        "",
        "ops",
        "ops@",
        "@example.org",
        "a@b@c",
        "ops@exa mple.org",
        "a@example.org, b@example.org",
    ] {
        check_refused(mail(bad, ok, ""), "is not an e-mail address");
        check_refused(mail(ok, bad, ""), "the sender");
    }
    for bad in ["ops@example.org\r\nBcc: x@example.org", "ops\n@example.org", "\0@example.org"] {
        check_refused(mail(bad, ok, ""), "line break");
        check_refused(mail(ok, bad, ""), "line break");
    }
}

#[test]
fn a_mail_server_that_makes_no_sense_is_refused() {
    let check = |server: &str, why: &str| {
        check_refused(mail("a@example.org", "b@example.org", server), why)
    };
    check("mail.example.org", "smtp://mail.example.org:25");
    check("http://u:s3cret@mail.example.org", "\"http\" is not smtp or smtps");
    check("smtp://", "a host and a port");
    check("smtp://mail.example.org/path", "only a host and a port");
    check("smtp://mail.example.org?tls=no", "only a host and a port");
    check("smtp://mail.example.org#x", "only a host and a port");
    check("smtp://mail.example.org:0", "port 0");
    check("smtp://mail.example.org:99999", "smtp://mail.example.org:25");
    check("smtp://a%0d%0ab:s3cret@mail.example.org", "is not text");
    check("smtp://u:%ff@mail.example.org", "is not text");
    check("smtp://ma%69l.example.org", "a host and a port");
}

#[test]
fn what_was_left_out_is_filled_in_and_secrets_are_not_listed() {
    let bench = Bench::new();
    let server = "smtps://me:s3cret@mail.example.org";
    bench.alerts.add(mail("Ops <ops@example.org>", "strake@example.org", server)).unwrap();
    let hook = bench.hook();
    assert_eq!(
        (hook.server.as_str(), hook.severity.as_str()),
        ("smtps://***@mail.example.org:465", "warning")
    );
    assert_eq!(hook.target, "Ops <ops@example.org>");
    assert!(!format!("{hook:?}{:?}", bench.alerts).contains("s3cret"));
    assert_eq!(bench.alerts.specs()[0].server, server);
    let listed = |server| mail("a@example.org", "b@example.org", server).listed().unwrap().server;
    assert_eq!(listed(""), "smtp://localhost:25");
    assert_eq!(listed("smtp://[::1]:2525"), "smtp://[::1]:2525");
}

/// The history: a configuration was copied from displayed output, and was applied on another host. The masked address
/// was a valid address without an owner.
#[test]
fn a_masked_hook_is_not_taken_for_the_real_one() {
    for spec in [
        webhook("https://me:s3cret@example.org/T0KEN"),
        mail("a@example.org", "b@example.org", "smtps://me:s3cret@mail.example.org"),
    ] {
        let masked = spec.masked().unwrap();
        let text = serde_json::to_string(&masked).unwrap();
        assert!(!text.contains("s3cret") && !text.contains("T0KEN"), "{text}");
        check_refused(masked, "give the full value");
    }
}

#[test]
fn a_spec_survives_being_recorded() {
    let spec = mail("a@example.org", "b@example.org", "smtp://u:p@localhost");
    let text = serde_json::to_string(&spec).unwrap();
    assert_eq!(serde_json::from_str::<HookSpec>(&text).unwrap(), spec);
}

#[test]
fn the_same_hook_twice_is_one_and_another_of_that_name_is_refused() {
    let bench = Bench::new();
    let add = |target| bench.alerts.add(webhook(target));
    assert_eq!(add("http://example.org/").unwrap().0, Added::Created);
    assert_eq!(add("http://example.org/").unwrap().0, Added::Unchanged);
    assert_eq!(add("http://example.org/b").unwrap_err().kind, AlertErrorKind::Exists);
    assert_eq!(bench.alerts.list().len(), 1);
}

#[test]
fn there_is_a_most_of_hooks() {
    let bench = Bench::new();
    for n in 0..HOOKS_MAX {
        let spec = HookSpec { name: format!("h{n}"), ..webhook("http://example.org/") };
        bench.alerts.add(spec).unwrap();
    }
    let error = bench.alerts.add(webhook("http://example.org/")).unwrap_err();
    assert_eq!(error.kind, AlertErrorKind::TooMany);
    bench.alerts.remove("h0").unwrap();
    bench.alerts.add(webhook("http://example.org/")).unwrap();
}
