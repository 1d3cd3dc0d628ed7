//! The calls about exports.

use strake_api::v1::export_service_server::ExportService;
use strake_api::v1::{
    AddHostRequest, AddReferralRequest, CreateExportRequest, DisconnectHostRequest, Export,
    ExportChange, GetExportRequest, HostChange, ListExportsRequest, ListExportsResponse,
    ListHostsRequest, ListHostsResponse, ListReferralsRequest, ListReferralsResponse,
    ReferralChange, ReleaseExportRequest, RemoveExportRequest, RemoveHostRequest,
    RemoveReferralRequest, SetExportRequest,
};
use strake_control::Control;
use tonic::{Request, async_trait};

use crate::shared::{Answer, Shared, check_hosts, check_text, check_texts};

#[async_trait]
impl ExportService for Shared {
    async fn list_exports(&self, _: Request<ListExportsRequest>) -> Answer<ListExportsResponse> {
        self.answer(|m| Ok(ListExportsResponse { exports: m.exports() })).await
    }

    async fn get_export(&self, request: Request<GetExportRequest>) -> Answer<Export> {
        let GetExportRequest { name } = request.into_inner();
        check_text("name", &name)?;
        self.answer(move |m| m.export(&name)).await
    }

    async fn create_export(&self, request: Request<CreateExportRequest>) -> Answer<ExportChange> {
        let r = request.get_ref();
        check_texts(&[
            ("array", &r.array),
            ("name", &r.name),
            ("via", &r.via),
            ("listen", &r.listen),
            ("nqn", &r.nqn),
        ])?;
        check_hosts(&r.allow_hosts)?;
        self.command(request, strake_control::create_export).await
    }

    async fn remove_export(&self, request: Request<RemoveExportRequest>) -> Answer<ExportChange> {
        check_text("name", &request.get_ref().name)?;
        self.command(request, Control::remove_export).await
    }

    async fn set_export(&self, request: Request<SetExportRequest>) -> Answer<ExportChange> {
        let r = request.get_ref();
        check_text("name", &r.name)?;
        check_hosts(&r.allow_hosts)?;
        check_hosts(&r.deny_hosts)?;
        self.command(request, Control::set_export).await
    }

    async fn release_export(&self, request: Request<ReleaseExportRequest>) -> Answer<ExportChange> {
        check_text("name", &request.get_ref().name)?;
        self.command(request, |c, r| c.run(|m| m.release_export(r))).await
    }

    async fn add_host(&self, request: Request<AddHostRequest>) -> Answer<HostChange> {
        let r = request.get_ref();
        check_text("nqn", &r.nqn)?;
        check_texts(&[("secret", &r.secret), ("controller_secret", &r.controller_secret)])?;
        check_text("tls_key", &r.tls_key)?;
        self.command(request, |c, r| c.run(|m| m.add_host(r))).await
    }

    async fn list_hosts(&self, _: Request<ListHostsRequest>) -> Answer<ListHostsResponse> {
        self.answer(|m| Ok(m.list_hosts())).await
    }

    async fn remove_host(&self, request: Request<RemoveHostRequest>) -> Answer<HostChange> {
        check_text("nqn", &request.get_ref().nqn)?;
        self.command(request, |c, r| c.run(|m| m.remove_host(r))).await
    }

    async fn disconnect_host(&self, request: Request<DisconnectHostRequest>) -> Answer<HostChange> {
        check_text("nqn", &request.get_ref().nqn)?;
        self.command(request, Control::disconnect_host).await
    }

    async fn add_referral(&self, request: Request<AddReferralRequest>) -> Answer<ReferralChange> {
        check_text("address", &request.get_ref().address)?;
        self.command(request, |c, r| c.run(|m| m.add_referral(r))).await
    }

    async fn list_referrals(
        &self,
        _: Request<ListReferralsRequest>,
    ) -> Answer<ListReferralsResponse> {
        self.answer(|m| Ok(m.list_referrals())).await
    }

    async fn remove_referral(
        &self,
        request: Request<RemoveReferralRequest>,
    ) -> Answer<ReferralChange> {
        check_text("address", &request.get_ref().address)?;
        self.command(request, |c, r| c.run(|m| m.remove_referral(r))).await
    }
}
