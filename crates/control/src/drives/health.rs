//! What NVMe drives say about their own state, under the kernel's driver and under ours.

use std::path::Path;
use std::sync::Arc;

use strake_dev_nvme::NvmeDevice;
use strake_dev_uring::nvme_log_page;
use strake_nvme_wire::health::{ErrorEntry, OCP_BYTES, OCP_PAGE, Ocp, Smart};
use strake_nvme_wire::log::{ERROR_BYTES, HEALTH_BYTES, page};

/// Entries of the error log that are shown, the newest ones: every drive has room for one at least, and gives zeroes
/// for what it has no room for, or refuses.
const ERROR_ENTRIES: usize = 16;

/// Where the log pages of a drive come from.
pub(crate) trait HealthSource: Send + Sync {
    /// The first `bytes` bytes of the log page `number`. May wait for the drive for seconds.
    ///
    /// # Errors
    /// Why there is no such page, in words.
    fn log_page(&self, number: u8, bytes: u32) -> Result<Vec<u8>, String>;
}

/// A drive that the kernel drives, by its device node.
pub(crate) struct OfKernel(pub(crate) String);

impl HealthSource for OfKernel {
    fn log_page(&self, number: u8, bytes: u32) -> Result<Vec<u8>, String> {
        nvme_log_page(Path::new(&self.0), number, bytes).map_err(|error| error.to_string())
    }
}

/// A drive that this process drives: its keeper asks.
impl HealthSource for NvmeDevice {
    fn log_page(&self, number: u8, bytes: u32) -> Result<Vec<u8>, String> {
        Self::log_page(self, number, bytes).map_err(|error| error.to_string())
    }
}

/// Everything that a drive says about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Report {
    pub(crate) smart: Smart,
    /// The newest errors of its log.
    pub(crate) errors: Vec<ErrorEntry>,
    /// What drives for data centres say in addition.
    pub(crate) ocp: Option<Ocp>,
    /// Why the errors are missing, if they are.
    pub(crate) note: String,
}

/// The health page of a drive.
///
/// # Errors
/// Why it cannot be read, in words.
pub(crate) fn smart_of(source: &dyn HealthSource) -> Result<Smart, String> {
    let bytes = source.log_page(page::HEALTH, HEALTH_BYTES as u32)?;
    Ok(Smart::decode(&whole(&bytes)?))
}

/// All pages of a drive.
///
/// # Errors
/// When it has not even the health page, which every NVMe drive has.
pub(crate) fn report_of(source: &dyn HealthSource) -> Result<Report, String> {
    let smart = smart_of(source)?;
    let log = |entries: usize| source.log_page(page::ERRORS, (entries * ERROR_BYTES) as u32);
    // A drive may refuse to read more than it keeps.
    let (errors, note) = match log(ERROR_ENTRIES).or_else(|_| log(1)) {
        Ok(bytes) => (ErrorEntry::decode_all(&bytes), String::new()),
        Err(why) => (Vec::new(), format!("the error log cannot be read: {why}")),
    };
    let extended = source.log_page(OCP_PAGE, OCP_BYTES as u32).ok();
    let ocp = extended.and_then(|bytes| Ocp::decode(&whole(&bytes).ok()?));
    Ok(Report { smart, errors, ocp, note })
}

fn whole<const N: usize>(bytes: &[u8]) -> Result<[u8; N], String> {
    bytes
        .try_into()
        .map_err(|_| format!("the drive answered with {} bytes instead of {N}", bytes.len()))
}

/// Where the pages of the drive at `path` come from, if the kernel drives it as NVMe.
pub(crate) fn source_of_kernel(path: &str) -> Arc<dyn HealthSource> {
    Arc::new(OfKernel(path.to_owned()))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::{HealthSource, Report, report_of, smart_of};
    use std::collections::BTreeMap;
    use strake_nvme_wire::log::{Failure, Health};
    use strake_nvme_wire::status::Status;

    /// A drive with these pages.
    pub(crate) struct Pages(pub(crate) BTreeMap<u8, Vec<u8>>);

    impl HealthSource for Pages {
        fn log_page(&self, number: u8, bytes: u32) -> Result<Vec<u8>, String> {
            let page = self.0.get(&number).filter(|page| page.len() >= bytes as usize);
            let page = page.ok_or_else(|| format!("no page {number:#x}"))?;
            Ok(page[..bytes as usize].to_vec())
        }
    }

    /// A drive that has become read-only, with one entry in its error log.
    pub(crate) fn read_only() -> Pages {
        let health =
            Health { writes_refused: true, media_errors: 3, failures: 1, ..Health::default() };
        let failure = Failure {
            number: 1,
            queue: 2,
            cid: 3,
            status: Status::WRITE_PROTECTED,
            block: 4,
            namespace: 1,
        };
        let pages = [(1, failure.bytes().to_vec()), (2, health.page().to_vec())];
        Pages(pages.into())
    }

    #[test]
    fn a_drive_needs_only_the_page_that_every_drive_has() {
        let mut pages = read_only();
        let report = report_of(&pages).expect("it has the page");
        assert_eq!((report.smart.media_errors, report.errors.len(), report.ocp), (3, 1, None));
        assert_eq!(report.note, "");
        pages.0.insert(0xc0, vec![7; 512]);
        assert_eq!(report_of(&pages).map(|r| r.ocp), Ok(None), "the page of another vendor");
        pages.0.remove(&1);
        let report = report_of(&pages).expect("it has the page");
        assert!(report.note.contains("error log") && report.errors.is_empty(), "{report:?}");
        pages.0.insert(2, vec![0; 256]);
        assert!(smart_of(&pages).is_err());
        assert_eq!(report_of(&Pages(BTreeMap::new())), Err::<Report, _>("no page 0x2".into()));
    }
}
