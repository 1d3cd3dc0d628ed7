//! Drives and sockets as people type them, made into what the daemon needs: it has another working directory.

use crate::args::parse::Drives;
use crate::error::CliError;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

/// What a drive looks like that is no path: memory, PCI devices, and those of other machines.
const SCHEMES: [&str; 4] = ["ram:", "null:", "pci:", "nvme-tcp://"];

/// The drive that `text` means: `ram:SIZE`, `null:SIZE`, `pci:ADDRESS` and `nvme-tcp://...` as they are, a path made
/// absolute, and a bare word such as `nvme0n1` the device of that name unless it names a file here. A word that is
/// neither is left to the daemon, which knows drives by serial number, worldwide name (`wwid:eui.00...`) and PCI
/// address as well.
///
/// # Errors
/// When the bare word names both, or the path is empty or cannot be made absolute.
pub fn drive(text: &str) -> Result<String, CliError> {
    if SCHEMES.iter().any(|s| text.starts_with(s)) {
        return Ok(text.to_owned());
    }
    if !text.is_empty() && !text.contains('/') {
        let device = Path::new("/dev").join(text);
        match (device.exists(), Path::new(text).exists()) {
            (true, true) => {
                return Err(CliError::usage(format!(
                    "drive {text:?} names both /dev/{text} and a file in this folder: write /dev/{text} or ./{text}"
                )));
            }
            (true, false) => return Ok(device.display().to_string()),
            (false, true) => {}
            // A serial number, `wwid:` and a worldwide name, or an address, which the daemon knows. What has a dot
            // and no colon is the name of a file that is not here.
            (false, false) if text.contains(':') || !text.contains('.') => {
                return Ok(text.to_owned());
            }
            (false, false) => {}
        }
    }
    absolute(text).map(|p| p.display().to_string())
}

/// All drives of `lists` through [`drive`].
///
/// # Errors
/// The first one's.
pub fn drives(lists: &[Drives]) -> Result<Vec<String>, CliError> {
    lists.iter().flat_map(|list| &list.0).map(|text| drive(text)).collect()
}

/// The address that `text` means. `unix:PATH` or an absolute path is a socket, `localhost` is the loopback address of
/// IPv4, and an address without a port has the port `default`.
///
/// # Errors
/// When the path is empty or cannot be made absolute.
pub fn listen(text: &str, default: u16) -> Result<String, CliError> {
    if let Some(path) = text.strip_prefix("unix:").or_else(|| text.starts_with('/').then_some(text))
    {
        return absolute(path).map(|p| format!("unix:{}", p.display()));
    }
    let (host, port) = match text.strip_prefix("localhost") {
        Some("") => return Ok(format!("127.0.0.1:{default}")),
        Some(rest) if rest.starts_with(':') => ("127.0.0.1", rest),
        _ => (text, ""),
    };
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    Ok(match bare.parse::<IpAddr>() {
        Ok(address) if port.is_empty() => SocketAddr::new(address, default).to_string(),
        Ok(_) | Err(_) => format!("{host}{port}"),
    })
}

/// `text` as an absolute path.
///
/// # Errors
/// When it is empty, or the working directory is gone.
pub fn absolute(text: &str) -> Result<PathBuf, CliError> {
    if text.is_empty() {
        return Err(CliError::usage("a path cannot be empty"));
    }
    std::path::absolute(text)
        .map_err(|e| CliError::io(format_args!("cannot make {text:?} an absolute path"), &e))
}

#[cfg(test)]
mod tests {
    use super::listen;

    #[test]
    fn addresses_are_completed() {
        let check = |typed: &str, meant: &str| {
            assert_eq!(listen(typed, 4420).expect("it is an address"), meant, "{typed}");
        };
        check("unix:/run/x.sock", "unix:/run/x.sock");
        check("/run/x.sock", "unix:/run/x.sock");
        check("localhost", "127.0.0.1:4420");
        check("localhost:10809", "127.0.0.1:10809");
        check("127.0.0.1", "127.0.0.1:4420");
        check("192.0.2.1:4421", "192.0.2.1:4421");
        check("::1", "[::1]:4420");
        check("[::1]", "[::1]:4420");
        check("[::1]:10809", "[::1]:10809");
        // The daemon says what is wrong with these.
        check("localhosts", "localhosts");
        check("example.org:1", "example.org:1");
        assert!(listen("unix:", 4420).is_err());
    }
}
