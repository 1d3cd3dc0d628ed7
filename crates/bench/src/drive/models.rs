//! Models of NVMe controllers in this process, our driver on each of them, and a core that steps the models.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use strake_block::{BlockDevice, BufPool};
use strake_dev_nvme::transport::memory::{Endpoint, Held, MemoryFunction, MemorySpace, Peer};
use strake_dev_nvme::{NvmeDevice, Stats, Window};
use strake_nvme_model::{Bus, Controller, Pace, Spec, Unmapped};
use strake_reactor::{CoreHandle, Poller, PollerId, Sleep, Turn, monotonic};
use strake_units::Nanos;

use crate::rig::pass;

/// Bytes of the registers of a controller.
const REGISTERS: usize = 16 << 10;
/// Bytes of each half of a completion: the model writes the half with the phase last.
const HALF: usize = 8;
/// Steps of every model in one turn of the core that steps them, so that the turn itself costs little.
const STEPS: usize = 64;
/// How long queue pairs are given to be deleted: the driver looks every millisecond.
const SETTLE: Duration = Duration::from_millis(20);
/// How long the driver may take to give the controllers back.
const END: Duration = Duration::from_secs(5);

/// A controller and its side of the bus.
pub struct Model {
    controller: Mutex<Controller>,
    peer: Peer,
    /// Halves of completions that were posted.
    halves: AtomicU64,
}

impl Model {
    fn controller(&self) -> MutexGuard<'_, Controller> {
        self.controller.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the controller do all that there is to be done.
    pub fn step(&self, now: Nanos) {
        self.controller().step(&Host::of(self), now);
    }

    /// The number of completions that the controller has posted.
    #[must_use]
    pub fn posted(&self) -> u64 {
        // Partner: `Host::write`. The entries themselves are ordered by their own words.
        self.halves.load(Ordering::Acquire) / 2
    }

    /// Whether the driver has given the controller back, or never enabled it (Base, CC.EN).
    fn is_disabled(&self) -> bool {
        const CC: usize = 0x14;
        self.peer.registers().read(CC) & 1 == 0
    }

    /// What the driver did against the specification, if it did anything.
    #[must_use]
    pub fn breach(&self) -> Option<String> {
        self.controller().breaches().first().map(|breach| format!("the driver: {breach:?}"))
    }
}

impl Endpoint for Model {
    fn reset(&self) -> io::Result<()> {
        let reset = self.controller().function_reset(&Host::of(self));
        reset.map_err(|status| io::Error::other(status.to_string()))
    }

    fn is_present(&self) -> bool {
        true
    }
}

/// The registers and the memory of the host during a step.
struct Host<'a> {
    peer: &'a Peer,
    memory: Held<'a>,
    halves: &'a AtomicU64,
}

impl<'a> Host<'a> {
    fn of(model: &'a Model) -> Self {
        Self { peer: &model.peer, memory: model.peer.space().hold(), halves: &model.halves }
    }
}

impl Bus for Host<'_> {
    fn register(&self, offset: usize) -> u32 {
        let value = if offset < REGISTERS { self.peer.registers().read(offset) } else { u32::MAX };
        // The driver orders its commands before the doorbell. This orders the reads of the commands behind it.
        fence(Ordering::Acquire);
        value
    }

    fn set_register(&self, offset: usize, value: u32) {
        if offset < REGISTERS {
            self.peer.registers().write(offset, value);
        }
    }

    fn read(&self, address: u64, out: &mut [u8]) -> Result<(), Unmapped> {
        if self.memory.read(address, out) { Ok(()) } else { Err(Unmapped) }
    }

    fn write(&self, address: u64, bytes: &[u8]) -> Result<(), Unmapped> {
        if !self.memory.write(address, bytes) {
            return Err(Unmapped);
        }
        if bytes.len() == HALF {
            // Partner: `Model::posted`. Only the thread that steps the model writes it.
            let halves = self.halves.load(Ordering::Relaxed) + 1;
            self.halves.store(halves, Ordering::Release);
        }
        Ok(())
    }

    fn interrupt(&self, _vector: u16) {
        self.peer.interrupt();
    }
}

/// Models, and devices of our driver on them.
pub struct Models {
    /// The devices, in the order of the models.
    pub devices: Vec<Arc<NvmeDevice>>,
    /// The models.
    pub models: Arc<[Arc<Model>]>,
    window: Arc<Window>,
    core: CoreHandle,
}

impl Drop for Models {
    /// Lets the driver give the controllers back: a driver whose controller is silent would go on for seconds.
    fn drop(&mut self) {
        let Ok(_stepping) = self.step() else { return };
        self.devices.clear();
        let since = Instant::now();
        while !self.models.iter().all(|model| model.is_disabled()) && since.elapsed() < END {
            pass(Duration::from_millis(1));
        }
    }
}

impl Models {
    /// Makes `count` models with one namespace of `blocks` blocks of 4 KiB and `queues` queue pairs, which `core` steps
    /// until the devices are ready.
    ///
    /// # Errors
    /// When a device does not become ready.
    pub fn new(count: usize, blocks: u64, queues: u16, core: &CoreHandle) -> Result<Self, String> {
        let space = Arc::new(MemorySpace::default());
        let window = Window::new(Arc::<MemorySpace>::clone(&space));
        window.follow_pools();
        let made = (0..count).map(|at| drive(at, blocks, queues, &space));
        let (models, functions): (Vec<_>, Vec<_>) =
            made.collect::<Result<Vec<_>, _>>()?.into_iter().unzip();
        let models: Arc<[Arc<Model>]> = models.into();
        let stepping = Stepping::start(&models, core)?;
        let open = |(at, function)| {
            let name = format!("model{at}");
            NvmeDevice::open(&name, Box::new(function), &window).map(Arc::new)
        };
        let devices = functions.into_iter().enumerate().map(open).collect::<Result<_, _>>();
        drop(stepping);
        let (devices, core) = (devices.map_err(|e| e.to_string())?, core.clone());
        Ok(Self { devices, models, window, core })
    }

    /// Steps all models until the result is dropped.
    ///
    /// # Errors
    /// When the core is gone.
    pub fn step(&self) -> Result<Stepping, String> {
        Stepping::start(&self.models, &self.core)
    }

    /// A device and its model.
    #[must_use]
    pub fn one(&self, at: usize) -> (Arc<NvmeDevice>, Arc<Model>) {
        (Arc::clone(&self.devices[at]), Arc::clone(&self.models[at]))
    }

    /// Steps all models for a while, so that the driver deletes the queue pairs of dropped queues.
    ///
    /// # Errors
    /// When the core is gone.
    pub fn settle(&self) -> Result<(), String> {
        let _stepping = self.step()?;
        pass(SETTLE);
        Ok(())
    }

    /// Steps one model until the result is dropped.
    ///
    /// # Errors
    /// When the core is gone.
    pub fn step_one(&self, at: usize) -> Result<Stepping, String> {
        Stepping::start(&Arc::from([Arc::clone(&self.models[at])]), &self.core)
    }

    /// The devices as drives of an array.
    #[must_use]
    pub fn drives(&self) -> Vec<Arc<dyn BlockDevice>> {
        self.devices.iter().map(|device| Arc::clone(device) as Arc<dyn BlockDevice>).collect()
    }

    /// Buffers of 4 KiB that the models reach.
    ///
    /// # Errors
    /// When they cannot be mapped.
    pub fn pool(&self, count: usize) -> Result<BufPool, String> {
        let pool = BufPool::new(count, super::BYTES);
        self.window.map_arena(pool.arena()).map_err(|e| e.to_string())?;
        Ok(pool)
    }

    /// What the drivers have counted, for [`check`](Self::check).
    #[must_use]
    pub fn stats(&self) -> Vec<Stats> {
        self.devices.iter().map(|device| device.stats()).collect()
    }

    /// Fails when a number of these models would show nothing: since `before`, the driver copied data or reset a
    /// controller, or a model found a violation of the specification.
    ///
    /// # Errors
    /// What was found.
    pub fn check(&self, before: &[Stats]) -> Result<(), String> {
        if let Some(breach) = self.models.iter().find_map(|model| model.breach()) {
            return Err(breach);
        }
        for (device, before) in self.devices.iter().zip(before) {
            let stats = device.stats();
            if stats != *before {
                let why = device.reason().map(|reason| format!(", {reason}")).unwrap_or_default();
                return Err(format!("the driver did more than commands: {stats:?}{why}"));
            }
        }
        Ok(())
    }
}

fn drive(
    at: usize,
    blocks: u64,
    queues: u16,
    space: &Arc<MemorySpace>,
) -> Result<(Arc<Model>, MemoryFunction), String> {
    let mut spec = Spec { queues_max: queues, write_cache: false, ..Spec::new(blocks) };
    spec.serial = format!("MODEL{at:04}");
    for namespace in &mut spec.namespaces {
        namespace.nguid[0] = at as u8;
    }
    let mut made = None;
    let function = MemoryFunction::new(space, REGISTERS, |peer| {
        let controller = Mutex::new(Controller::new(spec, Pace::Prompt));
        let model = Arc::new(Model { controller, peer, halves: AtomicU64::new(0) });
        model.controller().connect(&Host::of(&model));
        made = Some(Arc::clone(&model));
        model
    });
    let function = function.map_err(|e| e.to_string())?;
    Ok((made.ok_or("the function has no device")?, function))
}

/// A core that steps models again and again. Dropped, it ends: from then on, any thread may step them.
pub struct Stepping {
    core: CoreHandle,
    poller: PollerId,
}

impl Stepping {
    fn start(models: &Arc<[Arc<Model>]>, core: &CoreHandle) -> Result<Self, String> {
        let stepper = Stepper(Arc::clone(models));
        let poller = core.call(move |core| core.add(Box::new(stepper)));
        Ok(Self { core: core.clone(), poller: poller.map_err(|e| e.to_string())? })
    }
}

impl Drop for Stepping {
    fn drop(&mut self) {
        let poller = self.poller;
        // A core that is gone steps nothing.
        let _ = self.core.call(move |core| drop(core.remove(poller)));
    }
}

struct Stepper(Arc<[Arc<Model>]>);

impl Poller for Stepper {
    fn turn(&mut self, _now: Nanos) -> Turn {
        for _ in 0..STEPS {
            let now = monotonic();
            self.0.iter().for_each(|model| model.step(now));
        }
        Turn::Busy
    }

    fn sleep(&self, _sleep: &mut Sleep) {}
}
