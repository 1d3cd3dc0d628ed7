//! Prints the tables of releases of `docs/on-disk.md`; `cargo xtask releases` runs it.

#[path = "../../ondisk/tests/releases/images.rs"]
#[allow(dead_code, reason = "tests read more of it")]
mod images;
#[path = "../tests/releases/table.rs"]
mod table;

fn main() {
    print!("{}", table::tables());
}
