"""Request and reply: a service with four threads, and a client."""

import jsclient
from jsclient import errors, services


def divide(request: services.Request) -> None:
    a, b = request.json()
    if b == 0:
        request.error(400, "division by zero")
    else:
        request.respond_json(a / b)


with jsclient.connect("nats://127.0.0.1:4222") as nc:
    with services.add_service(
        nc, services.ServiceConfig(name="calculator", version="1.0.0")
    ) as service:
        service.add_endpoint("divide", divide, workers=4)
        assert (
            services.check_response(nc.request("divide", b"[6, 3]", timeout=5)).data
            == b"2.0"
        )
        try:
            services.check_response(nc.request("divide", b"[6, 0]", timeout=5))
        except errors.ServiceError as error:
            print("the service says:", error)
        print("requests so far:", service.stats().endpoints[0].num_requests)
    try:
        nc.request("divide", b"[1, 1]", timeout=5)
    except errors.NoResponders:
        print("nobody divides any more")
