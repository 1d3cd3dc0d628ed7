//! Prints the table of releases of `docs/on-disk.md`; `cargo xtask formats` puts it there.

#[path = "../tests/releases/images.rs"]
#[allow(dead_code, reason = "the test reads more of it")]
mod images;

fn main() {
    print!("{}", images::table());
}
