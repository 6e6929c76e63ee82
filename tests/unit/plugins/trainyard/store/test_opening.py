"""Which identity a process has towards S3, and which bucket is whose."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from trainyard.errors import ConfigError
from trainyard.settings import Settings, load
from trainyard.store import Credentials, credentials, models_store_for, store_for

CONFIG = Path(__file__).parents[5] / "config"
ADMIN = {"endpoint": "http://127.0.0.1:1", "access_key": "admin", "secret_key": "s3cret"}


@pytest.fixture
def settings() -> Settings:
    return load(CONFIG, environ={})


def test_the_administrators_file_comes_first(settings: Settings, tmp_path: Path) -> None:
    file = tmp_path / "admin.json"
    file.write_text(json.dumps(ADMIN))
    found = credentials(settings, {"TRAINYARD_S3_CREDENTIALS": str(file), "AWS_ACCESS_KEY_ID": "pod", "AWS_SECRET_ACCESS_KEY": "pod"})
    assert found == Credentials("http://127.0.0.1:1", "admin", "s3cret")
    assert "s3cret" not in repr(found)


def test_the_profiles_endpoint_wins_over_the_files(tmp_path: Path) -> None:
    file = tmp_path / "admin.json"
    file.write_text(json.dumps(ADMIN))
    settings = load(CONFIG, environ={"TRAINYARD_S3_ENDPOINT": "http://127.0.0.1:2"})
    assert credentials(settings, {"TRAINYARD_S3_CREDENTIALS": str(file)}).endpoint == "http://127.0.0.1:2"


def test_a_pod_has_its_keys_from_its_secret() -> None:
    settings = load(CONFIG, environ={"TRAINYARD_S3_ENDPOINT": "http://127.0.0.1:2"})
    found = credentials(settings, {"AWS_ACCESS_KEY_ID": "pod", "AWS_SECRET_ACCESS_KEY": "key"})
    assert (found.endpoint, found.access_key, found.secret_key) == ("http://127.0.0.1:2", "pod", "key")


def test_managed_s3_without_an_identity_or_a_server_is_told(settings: Settings) -> None:
    with pytest.raises(ConfigError, match="set TRAINYARD_S3_CREDENTIALS"):
        credentials(settings, {})
    with pytest.raises(ConfigError, match="set TRAINYARD_S3_ENDPOINT"):
        credentials(settings, {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"})


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"access_key": "a"}'])
def test_a_file_that_cannot_be_used_is_named(settings: Settings, tmp_path: Path, content: str) -> None:
    file = tmp_path / "admin.json"
    file.write_text(content)
    with pytest.raises(ConfigError, match=r"TRAINYARD_S3_CREDENTIALS=.*admin\.json: cannot be used"):
        credentials(settings, {"TRAINYARD_S3_CREDENTIALS": str(file)})


def test_buckets_of_a_tenant(settings: Settings) -> None:
    who = Credentials("http://127.0.0.1:1", "a", "b")
    assert store_for(settings, "vision", who).bucket == "trainyard-vision"
    assert models_store_for(settings, "vision", who).bucket == "trainyard-vision-models"


def test_where_airflow_people_and_pods_see_the_server_differently(settings: Settings) -> None:
    s3 = settings.cluster.s3.model_copy(
        update={
            "endpoint": "http://pods:1",
            "airflow_endpoint": "http://airflow:1",
            "public_endpoint": "https://people",
            "ca_bundle": "/ca.pem",
        }
    )
    elsewhere = replace(settings, cluster=settings.cluster.model_copy(update={"s3": s3}))
    who = credentials(elsewhere, {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"})
    assert (who.endpoint, who.ca_bundle) == ("http://airflow:1", "/ca.pem")
    store = models_store_for(elsewhere, "vision", who)
    assert (store.endpoint, store.ca_bundle) == ("http://airflow:1", "/ca.pem")
    assert replace(store, ca_bundle=None).presign("m/1/x").startswith("https://people/trainyard-vision-models/m/1/x?")


def test_the_administrators_file_does_not_say_whom_to_trust(settings: Settings, tmp_path: Path) -> None:
    file = tmp_path / "admin.json"
    file.write_text(json.dumps(ADMIN))
    s3 = settings.cluster.s3.model_copy(update={"ca_bundle": "/ca.pem"})
    trusting = replace(settings, cluster=settings.cluster.model_copy(update={"s3": s3}))
    assert credentials(trusting, {"TRAINYARD_S3_CREDENTIALS": str(file)}).ca_bundle == "/ca.pem"
