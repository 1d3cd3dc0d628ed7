//! Tests of arrays of format 1, which can be opened and can be converted to format 2.

use strake_engine::{ArrayError, ArrayErrorKind, Change, Superblock, plan_change};
use strake_ondisk::Format;

use super::{
    Arc, AreaLayout, AssemblePolicy, BlockDevice, Consistency, Copy, DEGRADED, DeviceError,
    DeviceInfo, Drive, GrowPlan, IoQueue, LEVELS, Level, Mutex, Outcome, STRICTLY, Saw, Sawn, Set,
    Stage, Torn, enlarge, grow, small, ticking,
};
use strake_units::{CoreIndex, MemberIndex};

/// Changes the labels of a stopped array to format 1.
fn make_format_1(stage: &Stage) {
    make_format_1_with(stage, |_| {});
}

/// Changes the labels of a stopped array to format 1 and applies `change` to each label.
fn make_format_1_with(stage: &Stage, change: impl Fn(&mut Superblock)) {
    for disk in &stage.disks {
        let mut label = stage.label(disk);
        label.format = Format::One;
        change(&mut label);
        let layout = AreaLayout::of(disk.ram.info().bytes()).expect("a member");
        for copy in [Copy::Head, Copy::Tail] {
            let at = layout.slot_offset(copy, label.generation);
            disk.ram.write_at(at, &label.encode(copy, at)).expect("inside");
        }
    }
}

fn versions(stage: &Stage) -> Vec<u16> {
    stage.disks.iter().map(|disk| stage.label(disk).format.version()).collect()
}

fn plan_upgrade(label: &Superblock, drives: &[Option<Drive>]) -> Result<GrowPlan, ArrayError> {
    plan_change(Change::UpgradeFormat, label, drives)
}

fn upgrade(stage: &mut Stage, policy: AssemblePolicy) -> Result<GrowPlan, String> {
    let assembled = match stage.find_any(policy) {
        Some(Outcome::Ready(assembled)) => *assembled,
        Some(Outcome::Waiting { what, .. } | Outcome::Refused { what, .. }) => return Err(what),
        None => return Err("no drive can be read".to_owned()),
    };
    let plan = plan_upgrade(assembled.label(), &assembled.drives()).map_err(|e| e.what)?;
    grow(assembled, &plan, &[], &mut ticking()).map_err(|e| e.what)?;
    Ok(plan)
}

#[test]
fn a_new_array_has_format_2_and_one_of_format_1_keeps_it() {
    for (level, members, group) in LEVELS {
        let mut stage = Set { group, ..Set::new(level, members) }.build().expect("sound");
        assert_eq!(stage.status().format.version(), 2);
        stage.fill(500, 50, 3);
        stage.stop().expect("clean");
        assert_eq!(versions(&stage), vec![2; members]);
        make_format_1(&stage);
        for _ in 0..2 {
            stage.again(STRICTLY);
            assert_eq!(stage.status().format, Format::One, "{level}");
            stage.verify(500);
            stage.stop().expect("clean");
            assert_eq!(versions(&stage), vec![1; members], "{level}: labels are never converted");
        }
        let plan = upgrade(&mut stage, STRICTLY).expect("there is room");
        assert!(
            plan.change() == Change::UpgradeFormat
                && !plan.is_nothing()
                && plan.bytes_before() == plan.bytes_after()
        );
        stage.again(STRICTLY);
        stage.verify(500);
        assert_eq!(stage.status().format.version(), 2, "{level}");
        stage.stop().expect("clean");
        assert_eq!(versions(&stage), vec![2; members], "{level}");
        assert!(upgrade(&mut stage, STRICTLY).expect("it may").is_nothing(), "{level}");
    }
}

/// The history of the bug: a label of format 1 can be opened with any recorded group width of a level without groups.
/// After a conversion, the array was always refused for this value.
#[test]
fn what_format_1_does_not_check_is_recorded_as_format_2_checks_it() {
    let mut stage = Set::new(Level::Raid1, 2).filled(300, 50, 3);
    stage.stop().expect("clean");
    make_format_1_with(&stage, |label| label.geometry.group_width += 1);
    stage.again(STRICTLY);
    assert_eq!(stage.status().format, Format::One);
    stage.stop().expect("clean");
    upgrade(&mut stage, STRICTLY).expect("there is room");
    stage.again(STRICTLY);
    assert_eq!(stage.status().format.version(), 2);
    stage.verify(300);
    stage.stop().expect("clean");
}

/// An array that grows keeps its format, and in format 2 its areas are after the new data.
#[test]
fn areas_follow_the_data_of_an_array_that_grows() {
    for old in [true, false] {
        let mut stage = small(Level::Raid1, 2, Consistency::Safe).filled(500, 50, 3);
        stage.stop().expect("clean");
        if old {
            make_format_1(&stage);
        }
        (0..2).for_each(|member| enlarge(&mut stage, member, 27 << 20));
        super::grow_offline(&mut stage, STRICTLY).expect("it grows");
        let label = stage.label(&stage.disks[0]);
        let data = label.geometry.member_blocks * u64::from(label.geometry.block_bytes);
        let wanted = if old { Format::One } else { Format::two(data) };
        assert_eq!(label.format, wanted);
        stage.again(STRICTLY);
        stage.verify(500);
        stage.stop().expect("clean");
    }
}

/// Runs a conversion and stops all drives at the `nth` change of a drive. Returns whether a stop occurred, and the
/// format afterwards.
fn cut_at(set: Set, (nth, torn): (u64, Torn), lost: Option<usize>) -> (bool, u16) {
    let mut stage = set.filled(300, 100, 3);
    stage.pass(6);
    stage.stop().expect("clean");
    make_format_1(&stage);
    let saw = Arc::new(Mutex::new(Saw { left: nth, torn, log: 0 }));
    let whole: Vec<Drive> = stage.disks.iter().map(|disk| disk.drive.clone()).collect();
    for disk in &mut stage.disks {
        let (inner, ram) = (Arc::clone(&disk.drive.device), disk.ram.clone());
        disk.drive.device = Arc::new(Sawn { inner, ram, saw: Arc::clone(&saw) });
    }
    let upgraded = upgrade(&mut stage, STRICTLY);
    stage.disks.iter_mut().zip(whole).for_each(|(disk, whole)| disk.drive = whole);
    let stopped = saw.lock().expect("one thread").left == 0;
    assert!(upgraded.is_err() || !stopped || torn == Torn::Whole, "it did not notice");
    let policy = if lost.is_some() { DEGRADED } else { STRICTLY };
    let gone = lost.map(|member| stage.disks.remove(member));
    stage.again(policy);
    let format = stage.status().format.version();
    stage.verify(300);
    if let (Some(member), Some(disk)) = (lost, gone) {
        stage.write(40, 100, 6).expect("works");
        stage.disks.insert(member, disk);
        stage.readd(member as u8).expect("it is the member");
        stage.healthy();
    }
    stage.pass(6);
    stage.verify(300);
    if stage.status().geometry.parity_strips() > 0 {
        stage.check_parity(64);
    }
    stage.stop().expect("clean");
    assert!(versions(&stage).iter().all(|version| *version == format), "{:?}", versions(&stage));
    upgrade(&mut stage, STRICTLY).expect("it is at rest");
    stage.again(STRICTLY);
    assert_eq!(stage.status().format.version(), 2);
    stage.verify(300);
    stage.stop().expect("clean");
    (stopped, format)
}

#[test]
fn f26_a_crash_while_an_array_is_converted_leaves_one_format_or_the_other_exhaustive() {
    for (level, members, consistency) in [
        (Level::Raid1, 2, Consistency::Safe),
        (Level::Raid5, 3, Consistency::Safe),
        (Level::Raid6, 4, Consistency::Strict),
    ] {
        let mut formats = Vec::new();
        for nth in 1.. {
            let torn = [Torn::Nothing, Torn::Half, Torn::Whole][nth as usize % 3];
            let mut stopped = true;
            for lost in [None, Some(0), Some(members - 1)] {
                let (cut, format) = cut_at(small(level, members, consistency), (nth, torn), lost);
                stopped &= cut;
                formats.push(format);
            }
            if !stopped {
                break;
            }
        }
        assert!(formats.contains(&1) && formats.contains(&2), "{level}: {formats:?}");
    }
}

/// A drive that is never read.
struct Sized(DeviceInfo);

impl BlockDevice for Sized {
    fn info(&self) -> DeviceInfo {
        self.0.clone()
    }

    fn open_queue(&self, _: CoreIndex, _: u32) -> Result<Box<dyn IoQueue>, DeviceError> {
        unreachable!("a plan reads nothing")
    }
}

#[test]
fn an_array_without_room_is_refused_with_numbers() {
    let mut stage = Set::new(Level::Raid1, 2).build().expect("sound");
    stage.stop().expect("clean");
    let mut label = stage.label(&stage.disks[0]);
    label.format = Format::One;
    let device: u64 = 8 << 40;
    let layout = AreaLayout::of(device).expect("a member");
    let with = |bytes: u64| {
        let info = DeviceInfo { blocks: bytes >> 9, ..stage.disks[0].ram.info() };
        let path = stage.disks[0].drive.path.clone();
        Some(Drive { path, device: Arc::new(Sized(info)) })
    };
    label.geometry.member_blocks = layout.data_bytes() / u64::from(label.geometry.block_bytes);
    let error = plan_upgrade(&label, &[with(device), with(device)]).expect_err("there is no room");
    assert_eq!(error.kind, ArrayErrorKind::State, "{error}");
    assert!(error.what.contains(&device.to_string()), "{error}");
    // The size in the plan for larger drives is sufficient, and one block less is not.
    let large = [with(2 * device), with(2 * device)];
    let plan = plan_upgrade(&label, &large).expect("there is room");
    let (before, after) = plan.least_drive_bytes();
    assert_eq!(before, device);
    assert!(after - before > device / 640 && after - before < device / 500, "{}", after - before);
    plan_upgrade(&label, &[with(after), with(after)]).expect("it is said to be enough");
    let less = plan_upgrade(&label, &[with(after), with(after - 4096)]);
    assert!(less.expect_err("a block less").what.contains("member 1"));
    assert_eq!(plan.limit(), MemberIndex(0));
    stage.down();
}
