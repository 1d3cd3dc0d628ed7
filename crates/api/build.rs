//! Compiles the interface with protox, so that the build does not need `protoc`.

#![forbid(unsafe_code)]

use prost::Message as _;
use std::error::Error;
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto");
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    let files = protox::compile(["proto/strake/v1/strake.proto"], ["proto"])?;
    std::fs::write(out.join("strake.v1.bin"), files.encode_to_vec())?;
    tonic_prost_build::configure()
        .type_attribute(".", "#[derive(serde::Serialize, serde::Deserialize)]")
        .message_attribute(".", "#[serde(default)]")
        .type_attribute("strake.v1.TextPart.part", "#[serde(rename_all = \"snake_case\")]")
        .field_attribute("strake.v1.TextPart.part", "#[serde(flatten)]")
        .compile_fds(files)?;
    Ok(())
}
