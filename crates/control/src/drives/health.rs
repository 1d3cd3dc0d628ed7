//! Health reports of NVMe drives, through the driver of the kernel or of this process.

use std::io;
use std::path::Path;
use std::sync::Arc;

use strake_dev_nvme::LogReader;
use strake_dev_uring::{nvme_controller_page, nvme_log_page};
use strake_nvme_wire::health::{
    ErrorEntry, LIST_BYTES, LIST_PAGE, LogPages, OCP_BYTES, OCP_PAGE, Ocp, Smart, is_listed,
};
use strake_nvme_wire::log::{ERROR_BYTES, HEALTH_BYTES, page};

/// Maximum number of shown entries of the error log. The newest entries are shown.
const ERROR_ENTRIES: usize = 16;

/// The source of the log pages of a drive.
pub(crate) trait HealthSource: Send + Sync {
    /// Returns the first `bytes` bytes of the log page `number`. May wait for the drive for a minute.
    ///
    /// # Errors
    /// The reason why there is no such page, as text.
    fn log_page(&self, number: u8, bytes: u32) -> Result<Vec<u8>, String>;

    /// Returns the supported log pages of the controller. May wait too.
    ///
    /// # Errors
    /// The reason for a failure, as text.
    fn pages(&self) -> Result<LogPages, String>;
}

/// A drive of the kernel driver, by its device node.
pub(crate) struct OfKernel(pub(crate) String);

impl HealthSource for OfKernel {
    fn log_page(&self, number: u8, bytes: u32) -> Result<Vec<u8>, String> {
        nvme_log_page(Path::new(&self.0), number, bytes).map_err(|error| in_words(&error))
    }

    fn pages(&self) -> Result<LogPages, String> {
        let page = nvme_controller_page(Path::new(&self.0)).map_err(|error| in_words(&error))?;
        Ok(LogPages::of(&whole(&page)?))
    }
}

/// The kernel allows most admin commands only for privileged processes.
pub(crate) fn in_words(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            format!("{error}; straked may not send this command: see PRIVILEGES in straked(8)")
        }
        _ => error.to_string(),
    }
}

/// A drive that this process drives. The driver reads the pages.
impl HealthSource for LogReader {
    fn log_page(&self, number: u8, bytes: u32) -> Result<Vec<u8>, String> {
        Self::log_page(self, number, bytes).map_err(|error| error.to_string())
    }

    fn pages(&self) -> Result<LogPages, String> {
        Self::pages(self).ok_or_else(|| "it was not ready yet".to_owned())
    }
}

/// The health report of a drive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Report {
    pub(crate) smart: Smart,
    /// The newest entries of the error log.
    pub(crate) errors: Vec<ErrorEntry>,
    /// The extended log page of data center drives.
    pub(crate) ocp: Option<Ocp>,
    /// The reason why the errors are missing, if any.
    pub(crate) note: String,
}

/// Reads the health page of a drive.
///
/// # Errors
/// The reason for a failure, as text.
pub(crate) fn smart_of(source: &dyn HealthSource) -> Result<Smart, String> {
    let bytes = source.log_page(page::HEALTH, HEALTH_BYTES as u32)?;
    Ok(Smart::decode(&whole(&bytes)?))
}

/// Reads all pages of a drive.
///
/// # Errors
/// If it lacks the health page, which every NVMe drive has.
pub(crate) fn report_of(source: &dyn HealthSource) -> Result<Report, String> {
    let smart = smart_of(source)?;
    let mut report = Report { smart, ..Report::default() };
    if let Err(why) = read_more(source, &mut report) {
        report.note = why;
    }
    Ok(report)
}

/// Reads optional pages, and only pages that the drive lists as supported, because every refused page is an entry in
/// its error log. After the first failure, no further pages are read, because drivers reset a controller that does not
/// answer.
fn read_more(source: &dyn HealthSource, report: &mut Report) -> Result<(), String> {
    let no = |what: &'static str| move |why: String| format!("{what} cannot be read: {why}");
    let pages = source.pages().map_err(no("the length of the error log"))?;
    let bytes = ERROR_ENTRIES.min(pages.error_entries) * ERROR_BYTES;
    let errors = source.log_page(page::ERRORS, bytes as u32).map_err(no("the error log"))?;
    report.errors = ErrorEntry::newest(&errors, report.smart.log_entries);
    if !pages.has_list {
        return Ok(());
    }
    let no_list = no("the list of log pages");
    let list = source.log_page(LIST_PAGE, LIST_BYTES as u32).map_err(no_list)?;
    if is_listed(&whole(&list)?, OCP_PAGE) {
        let extended = source.log_page(OCP_PAGE, OCP_BYTES as u32);
        report.ocp = Ocp::decode(&whole(&extended.map_err(no("the extended page"))?)?);
    }
    Ok(())
}

/// Returns the bytes as a page of `N` bytes.
pub(crate) fn whole<const N: usize>(bytes: &[u8]) -> Result<[u8; N], String> {
    bytes
        .try_into()
        .map_err(|_| format!("the drive answered with {} bytes instead of {N}", bytes.len()))
}

/// Returns the health source of the drive at `path`, which the kernel drives.
pub(crate) fn source_of_kernel(path: &str) -> Arc<dyn HealthSource> {
    Arc::new(OfKernel(path.to_owned()))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::{ERROR_ENTRIES, HealthSource, Report, report_of, smart_of};
    use std::collections::BTreeMap;
    use std::sync::Mutex;
    use strake_nvme_wire::health::{LIST_BYTES, LogPages};
    use strake_nvme_wire::log::{ERROR_BYTES, Failure, Health};
    use strake_nvme_wire::status::Status;

    /// A simulated drive with these pages.
    #[derive(Default)]
    pub(crate) struct Pages {
        pages: BTreeMap<u8, Vec<u8>>,
        /// Requested pages and bytes.
        asked: Mutex<Vec<(u8, u32)>>,
    }

    impl Pages {
        /// Returns the requested pages since the last call.
        fn asked(&self) -> Vec<u8> {
            let asked = std::mem::take(&mut *self.asked.lock().expect("nothing panics"));
            asked.into_iter().map(|(number, _)| number).collect()
        }

        /// Makes the drive list its log pages.
        fn list(&mut self) {
            let mut list = vec![0; LIST_BYTES];
            self.pages.keys().for_each(|number| list[4 * usize::from(*number)] = 1);
            self.pages.insert(0, list);
        }
    }

    impl HealthSource for Pages {
        fn log_page(&self, number: u8, bytes: u32) -> Result<Vec<u8>, String> {
            self.asked.lock().expect("nothing panics").push((number, bytes));
            let page = self.pages.get(&number).filter(|page| page.len() >= bytes as usize);
            let page = page.ok_or_else(|| format!("no page {number:#x}"))?;
            Ok(page[..bytes as usize].to_vec())
        }

        fn pages(&self) -> Result<LogPages, String> {
            let entries = self.pages.get(&1).map_or(64, |log| log.len() / ERROR_BYTES);
            Ok(LogPages { error_entries: entries, has_list: self.pages.contains_key(&0) })
        }
    }

    /// Returns a drive that has become read-only, with one entry in its error log.
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
        Pages { pages: pages.into(), ..Pages::default() }
    }

    /// Returns a drive that has used this part of its rated endurance.
    pub(crate) fn worn(percent: u8) -> Pages {
        let mut page = Health::default().page();
        page[5] = percent;
        Pages { pages: [(2, page.to_vec())].into(), ..Pages::default() }
    }

    #[test]
    fn a_drive_needs_only_the_page_that_every_drive_has() {
        let mut pages = read_only();
        let report = report_of(&pages).expect("it has the page");
        assert_eq!((report.smart.media_errors, report.errors.len(), report.ocp), (3, 1, None));
        assert_eq!(report.note, "");
        pages.pages.insert(2, vec![0; 256]);
        assert!(smart_of(&pages).is_err());
        assert_eq!(report_of(&Pages::default()), Err::<Report, _>("no page 0x2".into()));
    }

    /// The history of the bug: unsupported pages were requested. The drive recorded an error each time, and firmware
    /// that hung instead caused a reset each time.
    #[test]
    fn a_drive_is_asked_only_for_what_it_says_that_it_has() {
        let mut pages = read_only();
        pages.pages.insert(0xc0, vec![7; 512]);
        report_of(&pages).expect("it has the page");
        assert_eq!(pages.asked(), [2, 1], "it does not list its pages");
        pages.list();
        let report = report_of(&pages).expect("it has the page");
        assert_eq!((report.ocp, report.note), (None, String::new()), "of another vendor");
        assert_eq!(pages.asked(), [2, 1, 0, 0xc0]);
        pages.pages.remove(&0xc0);
        pages.list();
        report_of(&pages).expect("it has the page");
        assert_eq!(pages.asked(), [2, 1, 0], "the list does not have it");
        let log = pages.pages.get_mut(&1).expect("it is there");
        log.resize(100 * ERROR_BYTES, 0);
        report_of(&pages).expect("it has the page");
        let asked = pages.asked.lock().expect("nothing panics").clone();
        assert_eq!(asked[1], (1, (ERROR_ENTRIES * ERROR_BYTES) as u32));
    }

    #[test]
    fn a_drive_that_does_not_answer_is_asked_nothing_else() {
        let mut pages = read_only();
        pages.pages.insert(0xc0, vec![7; 512]);
        pages.list();
        pages.pages.remove(&1);
        let report = report_of(&pages).expect("it has the page");
        assert!(report.note.contains("error log") && report.errors.is_empty(), "{report:?}");
        assert_eq!(pages.asked(), [2, 1]);
    }

    #[test]
    fn a_daemon_without_rights_is_referred_to_the_manual() {
        let check = |kind: std::io::ErrorKind, is_referred: bool| {
            let words = super::in_words(&kind.into());
            assert_eq!(words.contains("PRIVILEGES in straked(8)"), is_referred, "{words}");
        };
        check(std::io::ErrorKind::PermissionDenied, true);
        check(std::io::ErrorKind::NotFound, false);
    }
}
