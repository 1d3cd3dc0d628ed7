mod leases;
mod simulation;
mod values;
