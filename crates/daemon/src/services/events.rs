//! The calls about events: recorded events, and new events as they occur.

use strake_api::v1::event_service_server::EventService;
use strake_api::v1::{
    AddHookRequest, Event, FollowEventsRequest, HookChange, ListEventsRequest, ListEventsResponse,
    ListHooksRequest, ListHooksResponse, RemoveHookRequest, TestHookRequest,
};
use strake_control::Control;
use strake_control::events::Filter;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, async_trait};

use crate::shared::{Answer, Shared, check_text, check_texts, status_of};

/// Maximum number of queued events for one client.
const IN_FLIGHT: usize = 64;

#[async_trait]
impl EventService for Shared {
    type FollowEventsStream = ReceiverStream<Result<Event, Status>>;

    async fn list_events(&self, request: Request<ListEventsRequest>) -> Answer<ListEventsResponse> {
        let r = request.into_inner();
        check_texts(&[("object", &r.object), ("kind", &r.kind), ("severity", &r.severity)])?;
        let events = self.control().events().list(&r).map_err(|error| status_of(&error))?;
        Ok(Response::new(ListEventsResponse { events }))
    }

    async fn follow_events(
        &self,
        request: Request<FollowEventsRequest>,
    ) -> Answer<Self::FollowEventsStream> {
        let r = request.into_inner();
        check_texts(&[("object", &r.object), ("kind", &r.kind), ("severity", &r.severity)])?;
        let filter = Filter::new(&r.object, &r.kind, &r.severity);
        let filter = filter.map_err(|error| status_of(&error))?;
        let (send, receive) = mpsc::channel(IN_FLIGHT);
        tokio::spawn(follow(self.clone(), r.from, filter, send));
        Ok(Response::new(ReceiverStream::new(receive)))
    }

    async fn add_hook(&self, request: Request<AddHookRequest>) -> Answer<HookChange> {
        let r = request.get_ref();
        check_texts(&[("name", &r.name), ("kind", &r.kind), ("target", &r.target)])?;
        check_texts(&[("severity", &r.severity), ("server", &r.server), ("from", &r.from)])?;
        self.command(request, Control::add_hook).await
    }

    async fn list_hooks(&self, _: Request<ListHooksRequest>) -> Answer<ListHooksResponse> {
        self.answer(|m| Ok(m.list_hooks())).await
    }

    async fn remove_hook(&self, request: Request<RemoveHookRequest>) -> Answer<HookChange> {
        check_text("name", &request.get_ref().name)?;
        self.command(request, Control::remove_hook).await
    }

    async fn test_hook(&self, request: Request<TestHookRequest>) -> Answer<HookChange> {
        check_text("name", &request.get_ref().name)?;
        self.command(request, Control::test_hook).await
    }
}

/// Sends the events from number `from` on (0: only new events) until the client has disconnected. A new event number
/// wakes this function. Earlier events are read from the recorded events, so a slow client receives every event that is
/// still recorded.
async fn follow(
    shared: Shared,
    from: u64,
    filter: Filter,
    send: mpsc::Sender<Result<Event, Status>>,
) {
    let mut newest = shared.newest.clone();
    let mut next = if from == 0 { shared.control().events().last() + 1 } else { from };
    loop {
        let seen = *newest.borrow_and_update();
        for event in shared.control().events().since(next, &filter) {
            next = event.number + 1;
            if send.send(Ok(event)).await.is_err() {
                return;
            }
        }
        // Events that the filter excludes count as processed.
        next = next.max(seen + 1);
        tokio::select! {
            () = send.closed() => return,
            changed = newest.changed() => if changed.is_err() { return },
        }
    }
}
