//! `strake demo`: what Strake does, shown on eight sparse files in a minute.
//!
//! Everything runs in one new directory with a daemon of its own, and is gone afterwards, also after a failure
//! or Ctrl-C, unless `--keep` was given.

mod load;
mod stage;

use std::path::Path;
use std::time::{Duration, Instant};

use serde::Serialize;
use strake_api::v1::{
    Array, CreateArrayRequest, CreateExportRequest, FailMemberRequest, GetArrayRequest, ReplaceMemberRequest,
};
use strake_units::ByteSize;
use tokio::signal::unix::{SignalKind, signal};

use crate::args::{DemoArgs, Goal, Output};
use crate::client::Client;
use crate::commands::reached;
use crate::error::CliError;
use crate::error::Exit;
pub use stage::daemon_path;

use load::Load;
use stage::{Stage, Tool};

/// Bytes of random data that are written at the start of the array and compared again and again.
const PATTERN_BYTES: u64 = 256 << 20;

/// Verified bytes that have to flow after each change before the next one.
const LOAD_BYTES: u64 = 64 << 20;

/// How long one phase may take before the demo gives up.
const PHASE_MAX: Duration = Duration::from_secs(60);

/// What the demo found, in one line of JSON.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// Everything was as it should be.
    pub ok: bool,
    /// Bytes read back and compared with what was written.
    pub verified_bytes: u64,
    /// Bytes that differed, and requests that failed.
    pub errors: u64,
    /// Members rebuilt.
    pub rebuilt_members: u32,
    /// Bytes per second of the rebuild, counted over the array.
    pub rebuild_bytes_per_s: u64,
    /// Client that wrote and read the pattern.
    pub client: String,
    /// Client that verified while members failed.
    pub load_client: String,
    /// Time of the whole demo in microseconds.
    pub elapsed_us: u64,
}

/// Prints steps: on stdout for people, on stderr when stdout is for the one line of JSON.
struct Teller {
    output: Output,
    step: u32,
}

impl Teller {
    fn line(&self, text: &str) {
        match self.output {
            Output::Table => println!("{text}"),
            Output::Json => eprintln!("{text}"),
        }
    }

    fn step(&mut self, done: &str, since: Instant, real: &str) {
        self.step += 1;
        self.line(&format!("{}. {done} ({:.1} s)", self.step, since.elapsed().as_secs_f64()));
        if !real.is_empty() {
            self.line(&format!("   on real drives: {real}"));
        }
    }
}

fn rate(bytes: u64, since: Instant) -> String {
    let seconds = since.elapsed().as_secs_f64().max(0.001);
    format!("{} at {}/s", ByteSize(bytes), ByteSize((bytes as f64 / seconds) as u64))
}

/// Runs the demo and cleans up after it.
///
/// # Errors
/// What went wrong first; the report is printed all the same in JSON mode.
pub async fn run(args: &DemoArgs, output: Output) -> Result<Exit, CliError> {
    let begun = Instant::now();
    let mut stage = Stage::new(args)?;
    let mut report = Report { load_client: "built-in (4 connections)".to_owned(), ..Report::default() };
    let mut teller = Teller { output, step: 0 };
    let (Ok(mut term), Ok(mut int)) = (signal(SignalKind::terminate()), signal(SignalKind::interrupt())) else {
        return Err(CliError::failed("signals cannot be received"));
    };
    let played = tokio::select! {
        played = play(&mut stage, &mut report, &mut teller) => played,
        _ = term.recv() => Err(CliError::failed("interrupted; everything was cleaned up")),
        _ = int.recv() => Err(CliError::failed("interrupted; everything was cleaned up")),
    };
    report.ok = played.is_ok() && report.errors == 0;
    report.elapsed_us = begun.elapsed().as_micros() as u64;
    if args.keep {
        teller.line(&format!("kept: {}; look with: strake --socket {} status", stage.dir.display(), stage.socket().display()));
        stage.keep();
    }
    drop(stage);
    match output {
        Output::Json => {
            let line = serde_json::to_string(&report).map_err(|e| CliError::failed(format!("cannot encode: {e}")))?;
            println!("{line}");
        }
        Output::Table => teller.line(&format!(
            "{}: {} verified, {} errors, {} members rebuilt, {:.0} s",
            if report.ok { "ok" } else { "FAILED" },
            ByteSize(report.verified_bytes),
            report.errors,
            report.rebuilt_members,
            begun.elapsed().as_secs_f64()
        )),
    }
    played.map(|()| if report.ok { Exit::Fine } else { Exit::Failed })
}

async fn play(stage: &mut Stage, report: &mut Report, teller: &mut Teller) -> Result<(), CliError> {
    let since = Instant::now();
    let drives = stage.make_drives(0..8)?;
    teller.step(&format!("made 8 sparse files of {} in {}", ByteSize(stage.drive_bytes), stage.dir.display()), since, "strake drive list");
    let since = Instant::now();
    let client = stage.start_daemon().await?;
    teller.step("started a straked of our own", since, "systemctl start straked");
    create(&client, drives, teller).await?;
    export(&client, stage, teller).await?;
    write_pattern(stage, report, teller).await?;
    let load = lose_two(&client, stage, report, teller).await?;
    verify(stage, report, teller, "with two drives lost").await?;
    rebuild(&client, stage, report, teller, &load).await?;
    let since = Instant::now();
    let (bytes, errors) = load.finish().await;
    report.verified_bytes += bytes;
    report.errors += errors;
    teller.step(&format!("ended the load: {} verified under it, {errors} errors", ByteSize(bytes)), since, "");
    verify(stage, report, teller, "after the rebuild").await?;
    restart(stage, teller).await?;
    verify(stage, report, teller, "after the restart").await
}

async fn create(client: &Client, drives: Vec<String>, teller: &mut Teller) -> Result<(), CliError> {
    let since = Instant::now();
    let request = CreateArrayRequest {
        name: "demo".to_owned(),
        level: "6".to_owned(),
        drives,
        strip_bytes: 64 << 10,
        ..CreateArrayRequest::default()
    };
    let made = client.arrays().create_array(request).await?.into_inner().array.unwrap_or_default();
    teller.step(
        &format!("created a RAID 6 of 8 drives with {}; it serves at once", ByteSize(made.size_bytes)),
        since,
        "strake array create tank --level 6 --strip 64KiB --drives nvme0n1,nvme1n1,...",
    );
    Ok(())
}

async fn export(client: &Client, stage: &Stage, teller: &mut Teller) -> Result<(), CliError> {
    let since = Instant::now();
    let request = CreateExportRequest {
        array: "demo".to_owned(),
        via: "nbd".to_owned(),
        listen: format!("unix:{}", stage.nbd().display()),
        ..CreateExportRequest::default()
    };
    let made = client.exports().create_export(request).await?.into_inner().export.unwrap_or_default();
    teller.step(
        &format!("exported it as {}", made.uri),
        since,
        "strake export create tank --via nbd --listen unix:/run/strake/tank.sock",
    );
    Ok(())
}

async fn write_pattern(stage: &Stage, report: &mut Report, teller: &mut Teller) -> Result<(), CliError> {
    let tool = Tool::find();
    tool.name().clone_into(&mut report.client);
    let (pattern, nbd) = (stage.pattern(), stage.nbd());
    let since = Instant::now();
    stage::make_pattern(&pattern, PATTERN_BYTES)?;
    let writing = Instant::now();
    blocking(move || tool.write(&pattern, &nbd)).await?;
    let done = format!("wrote {} of random data with {}", rate(PATTERN_BYTES, writing), tool.name());
    teller.step(&done, since, "nbdcopy FILE 'nbd+unix:///tank?socket=/run/strake/tank.sock'");
    verify(stage, report, teller, "with all drives").await
}

async fn verify(stage: &Stage, report: &mut Report, teller: &mut Teller, when: &str) -> Result<(), CliError> {
    let tool = Tool::find();
    let (pattern, nbd, copy) = (stage.pattern(), stage.nbd(), stage.dir.join("read-back"));
    let since = Instant::now();
    let differing = blocking(move || tool.compare(&pattern, &nbd, &copy, PATTERN_BYTES)).await?;
    report.verified_bytes += PATTERN_BYTES;
    report.errors += differing;
    let done = format!("read back {when} with {}: {}, {differing} bytes differ", tool.name(), rate(PATTERN_BYTES, since));
    teller.step(&done, since, "");
    if differing > 0 {
        return Err(CliError::failed(format!("{differing} bytes differ {when}")));
    }
    Ok(())
}

async fn blocking<T: Send + 'static>(
    job: impl FnOnce() -> Result<T, CliError> + Send + 'static,
) -> Result<T, CliError> {
    tokio::task::spawn_blocking(job).await.map_err(|e| CliError::failed(format!("a step of the demo panicked: {e}")))?
}

async fn lose_two(client: &Client, stage: &Stage, report: &Report, teller: &mut Teller) -> Result<Load, CliError> {
    let since = Instant::now();
    let load = Load::start(&stage.nbd(), "demo", PATTERN_BYTES)?;
    load.reached(LOAD_BYTES, PHASE_MAX).await?;
    teller.step(&format!("started a load that writes and verifies ({})", report.load_client), since, "");
    for member in [2, 5] {
        let since = Instant::now();
        let request = FailMemberRequest { name: "demo".to_owned(), member, dry_run: false };
        client.arrays().fail_member(request).await?;
        load.reached(LOAD_BYTES, PHASE_MAX).await?;
        let done = format!("failed member {member} under load; the load goes on: {}", rate(LOAD_BYTES, since));
        teller.step(&done, since, &format!("strake array fail tank --member {member}"));
    }
    Ok(load)
}

async fn get(client: &Client) -> Result<Array, CliError> {
    Ok(client.arrays().get_array(GetArrayRequest { name: "demo".to_owned() }).await?.into_inner())
}

async fn rebuild(
    client: &Client,
    stage: &Stage,
    report: &mut Report,
    teller: &mut Teller,
    load: &Load,
) -> Result<(), CliError> {
    let spares = stage.make_drives(8..10)?;
    let since = Instant::now();
    for (member, drive) in [2, 5].into_iter().zip(spares) {
        let request = ReplaceMemberRequest { name: "demo".to_owned(), member, drive, ..Default::default() };
        client.arrays().replace_member(request).await?;
    }
    teller.step("put two new drives in their place", since, "strake array replace tank --member 2 --with nvme8n1");
    let since = Instant::now();
    let size = loop {
        let array = get(client).await?;
        if reached(&array, Goal::Rebuild) {
            break array.size_bytes;
        }
        if since.elapsed() > PHASE_MAX {
            return Err(CliError::failed("the rebuild did not end in time"));
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    report.rebuild_bytes_per_s = (size as f64 / since.elapsed().as_secs_f64().max(0.001)) as u64;
    let done = format!("rebuilt both under load: {}", rate(size, since));
    teller.step(&done, since, "strake wait tank --for rebuild");
    load.reached(LOAD_BYTES, PHASE_MAX).await?;
    let array = get(client).await?;
    report.rebuilt_members = [2, 5].iter().filter(|m| array.members[**m].state == "in_sync").count() as u32;
    if report.rebuilt_members != 2 {
        return Err(CliError::failed(format!("{} of 2 members are in sync after the rebuild", report.rebuilt_members)));
    }
    Ok(())
}

async fn restart(stage: &mut Stage, teller: &mut Teller) -> Result<(), CliError> {
    let since = Instant::now();
    stage.stop_daemon()?;
    let client = stage.start_daemon().await?;
    let array = get(&client).await?;
    if !reached(&array, Goal::Healthy) {
        return Err(CliError::failed(format!("the array is {} after the restart", array.states.join(" "))));
    }
    teller.step("restarted straked; array and export came back by themselves", since, "systemctl restart straked");
    wait_for_export(&stage.nbd(), since)
}

fn wait_for_export(nbd: &Path, since: Instant) -> Result<(), CliError> {
    if nbd.exists() {
        return Ok(());
    }
    Err(CliError::failed(format!("the export did not come back in {:.1} s", since.elapsed().as_secs_f64())))
}
