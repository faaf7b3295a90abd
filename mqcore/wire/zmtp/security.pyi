from mqcore.security import Security

class NativeSecurity:
    @property
    def kept(self) -> list[object]: ...

def native(security: Security | None) -> NativeSecurity | None: ...
