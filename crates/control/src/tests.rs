use crate::control::Control;
use crate::manager::{CoreChoice, Options};
use crate::store::{ArrayRecord, Config, ExportRecord, Settings, Store};
use crate::{ControlError, ControlErrorKind};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use strake_api::v1::{
    Array, CreateArrayRequest, CreateExportRequest, DestroyArrayRequest, Export, FailMemberRequest,
    ImportArraysRequest, ListEventsRequest, RemoveExportRequest, ReplaceMemberRequest,
    UnloadArrayRequest,
};

mod halves;
