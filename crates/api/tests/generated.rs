//! The folder `generated` is what protox and prost make of the proto file. It is kept, so that the product's build
//! needs neither; `cargo xtask api` writes it.

#![forbid(unsafe_code)]

use prost::Message as _;
use std::path::Path;

/// Writes the descriptors and the code into `folder`.
fn generate(folder: &Path) {
    let files = protox::compile(["proto/strake/v1/strake.proto"], ["proto"]);
    let files = files.expect("the proto file is valid");
    std::fs::write(folder.join("strake.v1.bin"), files.encode_to_vec()).expect("a folder");
    tonic_prost_build::configure()
        .type_attribute(".", "#[derive(serde::Serialize, serde::Deserialize)]")
        .message_attribute(".", "#[serde(default)]")
        .type_attribute("strake.v1.TextPart.part", "#[serde(rename_all = \"snake_case\")]")
        .field_attribute("strake.v1.TextPart.part", "#[serde(flatten)]")
        .field_attribute(
            "strake.v1.AuditEntry.hash",
            "#[serde(skip_serializing_if = \"String::is_empty\")]",
        )
        .out_dir(folder)
        .compile_fds(files)
        .expect("the proto file has code");
}

#[test]
fn the_code_is_what_the_proto_file_gives() {
    let kept = Path::new("generated");
    if std::env::var_os("STRAKE_WRITE_API").is_some() {
        return generate(kept);
    }
    let fresh = Path::new(env!("CARGO_TARGET_TMPDIR"));
    generate(fresh);
    for file in ["strake.v1.rs", "strake.v1.bin"] {
        let [kept, fresh] = [kept, fresh].map(|folder| std::fs::read(folder.join(file)));
        let is_same = kept.expect("it is kept") == fresh.expect("it was written");
        assert!(is_same, "generated/{file} is not what the proto file gives: run cargo xtask api");
    }
}
