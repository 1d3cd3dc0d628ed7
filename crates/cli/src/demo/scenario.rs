//! The story, step by step.

use crate::args::Goal;
use crate::args::array::Loss;
use crate::args::parse::word;
use crate::connect::Connection;
use crate::demo::area::{Area, GRANULE};
use crate::demo::load::{self, Work};
use crate::demo::report::{Moved, Report};
use crate::demo::sandbox::{DRIVE_BYTES, Sandbox};
use crate::demo::tools;
use crate::demo::work::{Bench, CONNECTIONS, unbroken};
use crate::error::CliError;
use crate::limits::{START_ATTEMPTS, START_RETRY, WATCH_INTERVAL};
use crate::wait::{self, Shown};
use rustix::process::Signal;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;
use strake_api::v1::{
    Array, CreateArrayRequest, CreateExportRequest, FailMemberRequest, GetArrayRequest,
    ListExportsRequest, ReplaceMemberRequest, WatchArrayRequest,
};
use strake_units::ByteSize;
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

/// Name of the array and of its export.
const NAME: &str = "demo";
/// How many drives.
const DRIVES: u32 = 8;
/// Which of them are lost, and what takes their place.
const LOST: [(u32, &str, &str); 2] = [(2, "d2", "d8"), (5, "d5", "d9")];
/// How long each state of the array is under load.
const LOAD: Duration = Duration::from_secs(2);
/// The longest a rebuild or resynchronization of the demo may take.
const REBUILD_MAX: Duration = Duration::from_secs(120);

/// Where the story is.
pub struct Scenario<'a> {
    sandbox: &'a mut Sandbox,
    report: &'a mut Report,
    connection: Option<Connection>,
    bench: Option<Bench>,
    uri: String,
    /// The image that `nbdcopy` wrote, and what is in it.
    image: Option<(PathBuf, Area)>,
    qemu: bool,
}

impl<'a> Scenario<'a> {
    /// The beginning.
    #[must_use]
    pub fn new(sandbox: &'a mut Sandbox, report: &'a mut Report) -> Self {
        Self {
            sandbox,
            report,
            connection: None,
            bench: None,
            uri: String::new(),
            image: None,
            qemu: false,
        }
    }

    /// Runs all steps. The summary of the report is up to date afterwards, also after an error.
    ///
    /// # Errors
    /// When a step does not work, or data is not what was written.
    pub async fn play(mut self) -> Result<(), CliError> {
        let reported = self.steps().await;
        if let Some(bench) = &self.bench {
            let summary = self.report.summary();
            summary.verified_bytes += bench.tally.verified.load(Ordering::Relaxed);
            summary.errors += bench.tally.errors.load(Ordering::Relaxed);
        }
        if reported.is_err() {
            let summary = self.report.summary();
            summary.errors = summary.errors.max(1);
        }
        reported
    }

    async fn steps(&mut self) -> Result<(), CliError> {
        self.start().await?;
        self.create().await?;
        self.export().await?;
        self.other_clients().await?;
        self.fill().await?;
        self.lose_two().await?;
        self.verify("verify-degraded", "two members are lost and every byte is there").await?;
        self.rebuild().await?;
        self.verify("verify-rebuilt", "every byte is there after the rebuild").await?;
        self.restart().await?;
        self.verify("verify-restarted", "every byte is there after the restart").await?;
        self.kill().await?;
        self.verify("verify-killed", "no acknowledged write was lost in the kill").await
    }

    fn daemon(&self) -> Result<&Connection, CliError> {
        self.connection.as_ref().ok_or_else(|| CliError::usage("the daemon is not running"))
    }

    fn bench(&mut self) -> Result<&mut Bench, CliError> {
        self.bench.as_mut().ok_or_else(|| CliError::usage("nothing is exported"))
    }

    async fn start(&mut self) -> Result<(), CliError> {
        let dir = self.sandbox.dir().display().to_string();
        self.report.say(&format!("Strake demo, in {dir}\n"));
        self.connection = Some(self.sandbox.start().await?);
        let what = "straked runs with a socket and state of its own";
        self.report.step("start", what, Moved::default(), Some("strake daemon start"));
        Ok(())
    }

    async fn create(&mut self) -> Result<(), CliError> {
        let drives =
            (0..DRIVES).map(|i| self.sandbox.drive(&format!("d{i}"))).collect::<Result<_, _>>()?;
        let request = CreateArrayRequest {
            name: NAME.to_owned(),
            level: "6".to_owned(),
            drives,
            strip_bytes: 64 << 10,
            ..CreateArrayRequest::default()
        };
        let change = self.daemon()?.arrays().create_array(request).await?.into_inner();
        let size = ByteSize(change.array.map_or(0, |a| a.size_bytes));
        let what = format!(
            "a RAID 6 array of {size} on {DRIVES} sparse files of {}, serving at once",
            ByteSize(DRIVE_BYTES)
        );
        let real = "strake array create tank --level 6 --drives nvme0n1,nvme1n1,... --strip 64KiB";
        self.report.step("create", &what, Moved::default(), Some(real));
        Ok(())
    }

    async fn export(&mut self) -> Result<(), CliError> {
        let socket = self.sandbox.export_socket();
        let request = CreateExportRequest {
            array: NAME.to_owned(),
            via: "nbd".to_owned(),
            listen: format!("unix:{}", socket.display()),
            ..CreateExportRequest::default()
        };
        let change = self.daemon()?.exports().create_export(request).await?.into_inner();
        let export =
            change.export.ok_or_else(|| CliError::mismatch("the answer holds no export"))?;
        self.uri = export.uri;
        self.bench = Some(Bench::new(socket, NAME, tools::END, export.size_bytes));
        let what = format!("exported by NBD as {}", self.uri);
        let real = "strake export create tank --via nbd --listen 127.0.0.1:10809";
        self.report.step("export", &what, Moved::default(), Some(real));
        Ok(())
    }

    /// Whatever NBD clients are installed write something first.
    async fn other_clients(&mut self) -> Result<(), CliError> {
        let moved = Moved { bytes: tools::BYTES, requests: 0 };
        if tools::installed("nbdcopy") {
            let (path, area) = self.image()?;
            let (image, uri) = (path.clone(), self.uri.clone());
            self.report.begin();
            on_thread(move || tools::nbdcopy(&image, &uri)).await??;
            let what = format!("nbdcopy copied an image of {} to it", ByteSize(tools::BYTES));
            self.report.step("nbdcopy", &what, moved, Some("nbdcopy disk.img URI"));
            self.image = Some((path, area));
        }
        if tools::installed("qemu-io") {
            let uri = self.uri.clone();
            on_thread(move || tools::qemu_write(&uri)).await??;
            let what = format!("qemu-io wrote a pattern of {}", ByteSize(tools::BYTES));
            self.report.step(
                "qemu-io",
                &what,
                moved,
                Some("qemu-img convert -n -O raw disk.qcow2 URI"),
            );
            self.qemu = true;
        }
        if self.image.is_none() && !self.qemu {
            self.report.say("    (neither nbdcopy nor qemu-io is installed: only strake's own NBD client is used)");
        }
        Ok(())
    }

    /// A file with known bytes in it.
    fn image(&self) -> Result<(PathBuf, Area), CliError> {
        let path = self.sandbox.dir().join("disk.img");
        let granules = u32::try_from(tools::BYTES / GRANULE as u64).unwrap_or(u32::MAX);
        let mut area = Area::new(tools::NBDCOPY_AT, granules);
        let mut bytes = vec![0; tools::BYTES as usize];
        area.fill(&(0..granules), 1, &mut bytes);
        area.acknowledged(&(0..granules), 1);
        std::fs::write(&path, bytes)
            .map_err(|e| CliError::io(format_args!("cannot write {}", path.display()), &e))?;
        Ok((path, area))
    }

    async fn fill(&mut self) -> Result<(), CliError> {
        let bench = self.bench()?;
        let total = ByteSize(bench.bytes());
        let moved = bench.through(Work::Fill).await?;
        let what =
            format!("strake's own NBD client wrote {total} in order, on {CONNECTIONS} connections");
        self.report.step("fill", &what, moved, None);
        Ok(())
    }

    /// Two members go while random reads and writes run.
    async fn lose_two(&mut self) -> Result<(), CliError> {
        let running = self.bench()?.start(Work::Random)?;
        self.under_load(
            "load-healthy",
            "random reads and writes, every read compared: healthy",
            None,
        )
        .await?;
        for (lost, (member, file, _)) in (1..).zip(LOST) {
            self.fail(member).await?;
            self.sandbox.lose(file)?;
            let what = format!(
                "member {member} failed and its file is deleted, load continues: {lost} lost"
            );
            let real = format!("strake array fail tank --member {member} --accept redundancy");
            self.under_load(&format!("load-lost-{lost}"), &what, Some(&real)).await?;
        }
        unbroken(&self.bench()?.stop(running).await?)?;
        self.report.begin();
        Ok(())
    }

    async fn under_load(
        &mut self,
        name: &str,
        what: &str,
        real: Option<&str>,
    ) -> Result<(), CliError> {
        let before = self.bench()?.moved();
        self.report.begin();
        sleep(LOAD).await;
        let moved = self.bench()?.moved_since(before);
        self.report.step(name, what, moved, real);
        Ok(())
    }

    async fn fail(&mut self, member: u32) -> Result<(), CliError> {
        let request = FailMemberRequest {
            name: NAME.to_owned(),
            member,
            dry_run: false,
            accept: vec![word(&Loss::Redundancy)],
        };
        self.daemon()?.arrays().fail_member(request).await?;
        Ok(())
    }

    async fn rebuild(&mut self) -> Result<(), CliError> {
        for (member, _, file) in LOST {
            let drive = self.sandbox.drive(file)?;
            let request =
                ReplaceMemberRequest { name: NAME.to_owned(), member, drive, ..Default::default() };
            self.daemon()?.arrays().replace_member(request).await?;
        }
        let array = self.reach(Goal::Healthy).await?;
        let in_sync =
            |p: u32| array.members.iter().any(|m| m.position == p && m.state == "in_sync");
        let rebuilt = LOST.iter().filter(|(member, _, _)| in_sync(*member)).count();
        self.report.summary().rebuilt_members = u32::try_from(rebuilt).unwrap_or(0);
        let what = format!("{rebuilt} members replaced by empty files and rebuilt");
        let moved = Moved { bytes: DRIVE_BYTES * rebuilt as u64, requests: 0 };
        self.report.step(
            "rebuild",
            &what,
            moved,
            Some("strake array replace tank --member 2 --with nvme9n1"),
        );
        Ok(())
    }

    /// Waits until the array has reached `goal`, showing progress.
    async fn reach(&mut self, goal: Goal) -> Result<Array, CliError> {
        let interval_us = u64::try_from(WATCH_INTERVAL.as_micros()).unwrap_or(u64::MAX);
        let request = WatchArrayRequest { name: NAME.to_owned(), interval_us };
        let mut changes = self.daemon()?.arrays().watch_array(request).await?.into_inner();
        let mut shown = Shown::new();
        let mut last = None;
        let watching = wait::until(&mut changes, goal, &mut shown, &mut last, |_| ());
        let ended = timeout(REBUILD_MAX, watching).await;
        shown.end();
        match (ended, last) {
            (Ok(Ok(wait::Standing::Reached)), Some(array)) => Ok(array),
            (Ok(Err(error)), _) => Err(error),
            (_, last) => {
                let states = last.map_or_else(String::new, |a| a.states.join(" "));
                let seconds = REBUILD_MAX.as_secs();
                Err(CliError::mismatch(format!(
                    "the array is {states:?} after {seconds} s, not as expected"
                )))
            }
        }
    }

    async fn restart(&mut self) -> Result<(), CliError> {
        self.report.begin();
        self.connection = None;
        self.sandbox.stop(Signal::TERM).await?;
        self.connection = Some(self.sandbox.start().await?);
        let array = self.back().await?;
        let what = format!(
            "straked stopped and started: array and export started automatically, {} to resynchronize",
            ByteSize(array.resync_bytes_at_start)
        );
        let real = Some("strake daemon stop; strake daemon start");
        self.report.step("restart", &what, Moved::default(), real);
        Ok(())
    }

    /// The daemon is killed in the middle of writes.
    async fn kill(&mut self) -> Result<(), CliError> {
        let running = self.bench()?.start(Work::Random)?;
        self.under_load(
            "load-rebuilt",
            "random reads and writes again, then straked is killed (SIGKILL)",
            None,
        )
        .await?;
        self.connection = None;
        self.sandbox.stop(Signal::KILL).await?;
        self.bench()?.stop(running).await?;
        self.connection = Some(self.sandbox.start().await?);
        let array = self.back().await?;
        let bytes = array.resync_bytes_at_start;
        self.reach(Goal::Healthy).await?;
        self.report.summary().resynchronized_bytes = bytes;
        let what = format!(
            "started automatically after the kill: {} of {} had to be resynchronized, the rest was known to be in \
             sync",
            ByteSize(bytes),
            ByteSize(array.size_bytes)
        );
        self.report.step("kill", &what, Moved::default(), None);
        Ok(())
    }

    /// Waits until array and export are online again.
    async fn back(&self) -> Result<Array, CliError> {
        let mut seen = String::new();
        for _ in 0..START_ATTEMPTS {
            let array =
                self.daemon()?.arrays().get_array(GetArrayRequest { name: NAME.to_owned() }).await;
            let exports =
                self.daemon()?.exports().list_exports(ListExportsRequest {}).await?.into_inner();
            let exported = exports.exports.iter().any(|e| e.name == NAME && e.state == "online");
            match array {
                Ok(array) if exported && array.get_ref().states.iter().any(|s| s == "online") => {
                    return Ok(array.into_inner());
                }
                Ok(array) => seen = array.get_ref().states.join(" "),
                Err(status) => seen = status.message().to_owned(),
            }
            sleep(START_RETRY).await;
        }
        Err(CliError::mismatch(format!("array and export did not exist after the start: {seen}")))
    }

    /// Reads everything that was written, and compares it.
    async fn verify(&mut self, name: &str, what: &str) -> Result<(), CliError> {
        self.report.begin();
        let mut moved = self.bench()?.through(Work::Verify).await?;
        let mut clients = vec!["strake's own client"];
        moved.requests = 0;
        if let Some((_, area)) = &self.image {
            let (mut area, socket) = (area.clone(), self.sandbox.export_socket());
            let wrong = on_thread(move || compare(&mut area, &socket)).await??;
            let summary = self.report.summary();
            summary.errors += wrong;
            summary.verified_bytes += tools::BYTES - wrong * GRANULE as u64;
            moved.bytes += tools::BYTES;
        }
        if self.qemu {
            let uri = self.uri.clone();
            on_thread(move || tools::qemu_verify(&uri)).await??;
            self.report.summary().verified_bytes += tools::BYTES;
            moved.bytes += tools::BYTES;
            clients.push("qemu-io");
        }
        let what =
            format!("{what}: {} compared by {}", ByteSize(moved.bytes), clients.join(" and "));
        self.report.step(name, &what, moved, None);
        self.no_errors()
    }

    fn no_errors(&mut self) -> Result<(), CliError> {
        let counted = self.bench()?.tally.errors.load(Ordering::Relaxed);
        match counted + self.report.summary().errors {
            0 => Ok(()),
            n => Err(CliError::mismatch(format!("{n} requests failed or returned other data"))),
        }
    }
}

/// Granules of the image that differ from what the export gives back.
fn compare(area: &mut Area, socket: &std::path::Path) -> Result<u64, CliError> {
    let mut bytes = vec![0; tools::BYTES as usize];
    load::read_at(socket, NAME, tools::NBDCOPY_AT, &mut bytes)
        .map_err(|e| CliError::mismatch(format!("cannot read the image back: {e}")))?;
    let granules = 0..area.granules();
    Ok(area.compare(&granules, &bytes))
}

/// Runs what blocks on a thread of its own, so that signals are still heard.
async fn on_thread<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, CliError> {
    let (tell, reported) = oneshot::channel();
    std::thread::Builder::new()
        .name("demo-tool".to_owned())
        .spawn(move || tell.send(work()))
        .map_err(|e| CliError::io("cannot start a thread", &e))?;
    reported.await.map_err(|_| CliError::mismatch("a thread of the demo has panicked"))
}
