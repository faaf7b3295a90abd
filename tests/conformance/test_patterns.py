"""Every built-in pattern passes the suite that anybody's must."""

from mqcore.testing import PatternSuite


class TestPair(PatternSuite):
    pattern = partner = "pair"


class TestReq(PatternSuite):
    pattern, partner = "req", "rep"


class TestRep(PatternSuite):
    pattern, partner = "rep", "req"


class TestDealer(PatternSuite):
    pattern = partner = "dealer"


class TestRouter(PatternSuite):
    pattern, partner = "router", "dealer"


class TestRouterOfRouters(PatternSuite):
    pattern = partner = "router"


class TestPush(PatternSuite):
    pattern, partner = "push", "pull"


class TestPull(PatternSuite):
    pattern, partner = "pull", "push"


class TestPub(PatternSuite):
    pattern, partner = "pub", "sub"


class TestSub(PatternSuite):
    pattern, partner = "sub", "pub"


class TestXPub(PatternSuite):
    pattern, partner = "xpub", "xsub"

    def prepare(self, sock):
        if sock.pattern == "xsub":
            sock.send(b"\1")


class TestXSub(TestXPub):
    pattern, partner = "xsub", "xpub"


class TestRadio(PatternSuite):
    pattern, partner = "radio", "dish"


class TestDish(PatternSuite):
    pattern, partner = "dish", "radio"


class TestClient(PatternSuite):
    pattern, partner = "client", "server"


class TestServer(PatternSuite):
    pattern, partner = "server", "client"
    nobody = 1 << 31


class TestScatter(PatternSuite):
    pattern, partner = "scatter", "gather"


class TestGather(PatternSuite):
    pattern, partner = "gather", "scatter"


class TestPeerSocket(PatternSuite):
    pattern = partner = "peer"
    nobody = 1 << 31


class TestChannel(PatternSuite):
    pattern = partner = "channel"


class TestPair1(PatternSuite):
    pattern = partner = "pair1"


class TestBus(PatternSuite):
    pattern = partner = "bus"


class TestSurveyor(PatternSuite):
    pattern, partner = "surveyor", "respondent"
    options = {"deadline": 60.0}    # nothing here is to be over


class TestRespondent(PatternSuite):
    pattern, partner = "respondent", "surveyor"
    partner_options = {"deadline": 60.0}
