"""Flags reach the session; TF_CONFIG of one process is accepted."""

import pytest

from cifar10 import cluster


def test_threads_devices_and_logging_reach_the_session():
  config = cluster.session_config(3, 5, 7, True)
  assert config.device_count['CPU'] == 3
  assert config.intra_op_parallelism_threads == 5
  assert config.inter_op_parallelism_threads == 7
  assert config.log_device_placement
  assert config.allow_soft_placement
  assert config.gpu_options.allow_growth


def test_run_config_keeps_what_it_is_given(tmp_path):
  session = cluster.session_config()
  config = cluster.run_config(str(tmp_path), 4, 50, 3, session)
  assert config.model_dir == str(tmp_path)
  assert config.tf_random_seed == 4
  assert config.save_checkpoints_steps == 50
  assert config.keep_checkpoint_max == 3
  assert config.session_config == session


@pytest.mark.parametrize('value', ['', '{}', '{"cluster": {"chief": ["127.0.0.1:1"]}}'])
def test_one_process_is_no_cluster(monkeypatch, value):
  monkeypatch.setenv('TF_CONFIG', value)
  cluster.check_single_process()
