"""What tests of the HTTP gateway share."""


def problem(answer, status, name):
    """The answer is this problem, and says what to do."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    said = answer.json()
    assert said["type"] == f"urn:mqcore:http:{name}" and said["status"] == status
    assert said["title"] and said["detail"] and said["hint"]
    return said
