//! `/etc/strake/slots.toml`: the operator's names of slots.
//!
//! The parser accepts one kind of line of TOML, and rejects anything else with its line number: `"PORT" = "NAME"` in
//! the table `[slots]`. A port is a PCI address, of the drive or of a bridge above it, or the default name of the slot.
//! A duplicate name is an error, because it could lead to the wrong drive.

use std::collections::BTreeMap;
use std::path::Path;

/// Largest size of the file in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The content of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SlotNames {
    /// Names by port.
    names: BTreeMap<String, String>,
}

impl SlotNames {
    /// Reads the file at `path`; empty if there is none.
    ///
    /// # Errors
    /// Returns an error, with the line, if the file cannot be read or parsed.
    pub(crate) fn read(path: &Path) -> Result<Self, String> {
        match std::fs::metadata(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Self::default());
            }
            Err(error) => return Err(error.to_string()),
            Ok(meta) if meta.len() > FILE_BYTES_MAX => {
                return Err(format!("it has more than {FILE_BYTES_MAX} bytes"));
            }
            Ok(_) => {}
        }
        let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
        Self::parse(&text)
    }

    /// Parses `text`.
    fn parse(text: &str) -> Result<Self, String> {
        let mut names = Self::default();
        let mut in_slots = false;
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            let wrong = |why: &str| format!("line {}: {why}: {line}", number + 1);
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if line.starts_with('[') {
                let header = line.split('#').next().unwrap_or_default().trim();
                if header != "[slots]" || in_slots {
                    return Err(wrong("the only table is [slots], once"));
                }
                in_slots = true;
                continue;
            }
            let (key, rest) = key_of(line).ok_or_else(|| wrong("not KEY = \"TEXT\""))?;
            let (value, rest) = string(rest).ok_or_else(|| wrong("the value is no \"TEXT\""))?;
            if !rest.is_empty() && !rest.starts_with('#') {
                return Err(wrong("there is more after the value"));
            }
            if value.is_empty() || value.chars().any(char::is_control) {
                return Err(wrong("the value is empty or has control characters"));
            }
            if !in_slots {
                return Err(wrong("unknown key; names of slots are below [slots]"));
            }
            if names.names.values().any(|name| name == value) {
                return Err(wrong("another slot has this name"));
            }
            if names.names.insert(key.to_ascii_lowercase(), value.to_owned()).is_some() {
                return Err(wrong("the key is there twice"));
            }
        }
        Ok(names)
    }

    /// The name for the first of `ports` that has one.
    pub(crate) fn name_of<'a>(&self, ports: impl IntoIterator<Item = &'a str>) -> Option<String> {
        let name = |port: &str| self.names.get(&port.to_ascii_lowercase()).cloned();
        ports.into_iter().find_map(name)
    }
}

/// The key at the start of a line, and the text behind the equals sign.
fn key_of(line: &str) -> Option<(&str, &str)> {
    let (key, rest) = match string(line) {
        Some(quoted) => quoted,
        None => {
            let end = line.find(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '-')?;
            (&line[..end], line[end..].trim_start())
        }
    };
    (!key.is_empty()).then_some(())?;
    Some((key, rest.strip_prefix('=')?.trim_start()))
}

/// The string at the start of `text`, in either kind of quotes and without escapes, and the text behind it.
fn string(text: &str) -> Option<(&str, &str)> {
    let quote = text.chars().next().filter(|c| ['"', '\''].contains(c))?;
    let (inside, rest) = text[1..].split_once(quote)?;
    (quote == '\'' || !inside.contains('\\')).then_some((inside, rest.trim_start()))
}

#[cfg(test)]
mod tests {
    use super::SlotNames;
    use std::path::Path;

    #[test]
    fn names_are_read() {
        let text = "# front\n\n[slots] # by port\n\
                    \"0000:3B:00.0\" = \"bay 3\"\n'PCI slot 12' = 'bay \"4\"'\n";
        let names = SlotNames::parse(text).expect("it is valid");
        assert_eq!(names.name_of(["0000:00:01.0", "0000:3b:00.0"]).as_deref(), Some("bay 3"));
        assert_eq!(names.name_of(["pci slot 12"]).as_deref(), Some("bay \"4\""));
        assert_eq!(names.name_of(["0000:3c:00.0"]), None);
        assert_eq!(SlotNames::parse(""), Ok(SlotNames::default()));
        assert_eq!(SlotNames::read(Path::new("/nowhere/slots.toml")), Ok(SlotNames::default()));
    }

    #[test]
    fn what_is_not_understood_is_refused_with_its_line() {
        let check = |text: &str, line: &str| {
            let wrong = SlotNames::parse(text).expect_err(text);
            assert!(wrong.starts_with(line), "{text:?}: {wrong}");
        };
        check("\"a\" = \"b\"", "line 1: unknown key");
        check("[slots]\n[slots]", "line 2");
        check("[other]", "line 1");
        check("[slots]\n\"a\" = b", "line 2: the value");
        check("[slots]\n\"a\" = \"b\" c", "line 2: there is more");
        check("[slots]\n\"a\" = \"b\\n\"", "line 2: the value");
        check("[slots]\n\"a\" = \"\"", "line 2: the value");
        check("[slots]\na = \"b\"\nA = \"c\"", "line 3: the key is there twice");
        check("[slots]\na = \"b\"\nc = \"b\"", "line 3: another slot");
        check("led_command = \"/bin/led\"", "line 1: unknown key");
        check("[slots]\n= \"b\"", "line 2: not KEY");
        check("[slots]\n\"", "line 2: not KEY");
    }
}
