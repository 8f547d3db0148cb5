# `make setup` installs what the other targets need into .venv; each of them begins with it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# tools/run_suites.py sets another, which gives the few tests that failed a second try.
PYTEST ?= $(BIN)/pytest
# In the version of requirements.lock, with the package sources that pip has on this machine.
UV := $(BIN)/python tools/run_uv.py
INSTALLED := $(VENV)/.installed
comma := ,
# Three tries; tools/run_uv.py makes its own.
RETRY := $(PYTHON) tools/retry.py
# If it is set, every run of pytest has to rewrite all assertions again, which takes ten seconds.
unexport PYTHONDONTWRITEBYTECODE
# What several suites need built, as tests/locks pins it; see tests/end_to_end/shared_torch.py.
export TORCHYARD_TEST_ENVIRONMENTS ?= $(CURDIR)/.test-environments

# The tests that need no network, no service and no torch.
QUICK := not (smoke or end_to_end or slow or long or faults or fuzz or object_store or postgres or containers or azure or widgets or web_page or runner or oidc or slurm or ray or torch or gpu)

.PHONY: help setup demo test test-slow smoke test-all test-postgres-core fix coverage release test-e2e \
  test-object-store test-postgres test-e2e-postgres test-long test-cgroups test-faults test-fuzz \
  test-containers test-azure test-widgets test-runner test-oidc widgets azure-clients azure-page \
  notebooks postgres mpi podman azurite oidc-provider yaml-language-server administration curated check \
  format docs docs-site bench lock clean install-all versions debian-packages test-environments \
  newest-clients chromium kills-on-engines ui test-ui ui-pictures test-train test-layers \
  test-deepspeed gpu slurm slurm-programs ray ray-programs registry acpt-selftest curated-locks \
  record-home causes

help:
	@echo 'make demo               train a small network on two local nodes'
	@echo 'make setup              install torchyard and its tools into $(VENV)'
	@echo 'make install-all        install whatever the suites of `.ci/run` need, and print its versions'
	@echo
	@echo 'make check              check format, lint, types, imports, names and generated pages'
	@echo 'make test               run the quick tests: no network, no torch'
	@echo 'make smoke              one real test for each capability of the README'
	@echo 'make test-all           every suite, one after another; ends with a table'
	@echo 'make coverage           run them and print how many lines they run'
	@echo 'make fix                format the code and write the generated pages'
	@echo
	@echo 'make test-slow          run what starts many programs, or waits'
	@echo 'make test-e2e           run real jobs with torch in a built environment'
	@echo 'make test-object-store  read and write data on S3 and Azure Blob servers that the tests start'
	@echo 'make test-postgres      run the tests that use a database on a PostgreSQL that they start'
	@echo 'make test-e2e-postgres  run real jobs, recorded in PostgreSQL'
	@echo 'make test-faults        kill ranks, workers and servers at random; run scripts that go wrong'
	@echo 'make causes             run every script that goes wrong, and see what is said: LAUNCHER=torchrun'
	@echo 'make kills-on-engines   kill what runs on a real Ray and a real Slurm at random; needs root'
	@echo 'make test-fuzz          attack by path, link and name; fuzz the API from its schema'
	@echo 'make test-containers    build and run images, Dockerfiles and the compose file with a real podman'
	@echo "make test-azure         run Azure ML's real clients, in the versions of tests/contracts_azure/clients"
	@echo 'make test-widgets       show notebook widgets in JupyterLab in Chromium'
	@echo 'make ui                 build the web page into the package'
	@echo 'make test-ui            build it again and compare, then use it and the docs site in Chromium'
	@echo 'make ui-pictures        write docs/pictures and .ui-pictures from the page'
	@echo 'make test-runner        run jobs as other Unix users; needs root'
	@echo 'make test-oidc          sign in with a real OpenID Connect provider'
	@echo 'make slurm              run jobs on a Slurm that the tests start; needs root'
	@echo 'make ray                run jobs on Ray clusters that the tests start'
	@echo 'make test-train         test torchyard.train with torch: ranks, kills, its own wheel'
	@echo 'make test-layers        test the layers for torch-ort and ort-moe with torch'
	@echo 'make test-deepspeed     train with DeepSpeed and fairscale on two ranks, by hand: minutes'
	@echo 'make gpu                run what needs a GPU: ranks, precisions, checkpoints, A/B of speed'
	@echo 'make test-cgroups       limits of jobs on a kernel of their own, in QEMU'
	@echo 'make test-long          run minutes of load, on a quiet machine'
	@echo 'make mpi                install Open MPI 4, for the tests of MPI'
	@echo
	@echo 'make docs               write the pages that are generated from the code'
	@echo 'make docs-site          build the documentation site into .docs-site/site'
	@echo 'make azure-page         write docs/reference/azure-ml.md from what the clients did'
	@echo 'make notebooks          run public notebooks of Azure ML: SUITE=sdk-v1 REPOSITORY=FOLDER.git'
	@echo 'make curated            build the curated environments and record what they hold'
	@echo 'make acpt-selftest      test each component of the curated environments, and their labels'
	@echo 'make curated-locks      resolve the environments for GPUs that are not built here'
	@echo 'make bench              measure for up to ten minutes; one table, each figure beside its peer'
	@echo 'make lock               resolve requirements*.lock and tests/locks again'
	@echo 'make release            prepare a release: VERSION=x.y.z'
	@echo 'make clean              remove what these targets made here'

setup: $(INSTALLED)

# The stamp is written last: a broken installation is tried again.
$(INSTALLED): pyproject.toml requirements.lock requirements-build.lock tools/run_uv.py tools/retry.py
	@command -v $(PYTHON) >/dev/null || { \
	  echo 'error: `$(PYTHON)` is not on this machine' >&2; \
	  echo 'hint: install Python 3.10 or later, or say which: `make setup PYTHON=python3.12`' >&2; \
	  exit 2; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { \
	  echo "error: torchyard needs Python 3.10 or later, and \`$(PYTHON)\` is $$($(PYTHON) -V)" >&2; \
	  echo 'hint: say which Python to use: `make setup PYTHON=python3.12`' >&2; \
	  exit 2; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { \
	  echo 'error: `$(PYTHON)` has no module `venv` or `ensurepip`' >&2; \
	  echo 'hint: on Debian and Ubuntu they are a package: `apt-get install python3-venv`' >&2; \
	  exit 2; }
	@echo 'installing torchyard into $(VENV) (seconds from warm caches, else a minute or two)'
	@test -x $(BIN)/pip || { rm -rf $(VENV); $(PYTHON) -m venv $(VENV); }
	@$(UV) pip install --quiet --no-deps -r requirements.lock -e .
	@touch $@

# What an extra of the package adds, and a group of development dependencies; each once. The lock of
# all of them agrees with requirements.lock, so none replaces what `setup` installed.
$(VENV)/.extra-%: $(INSTALLED) requirements-all.lock
	@$(UV) pip install --quiet -c requirements-all.lock -r pyproject.toml --extra $*
	@touch $@

$(VENV)/.group-%: $(INSTALLED) requirements-all.lock
	@$(UV) pip install --quiet -c requirements-all.lock --group $*
	@touch $@

# Install Debian's packages as root, or say what is missing and which names to ask for.
apt_get = [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null || { \
    echo "error: $(1) on this machine" >&2; \
    echo "hint: install with \`apt-get install $(2)\`; no service of it need run" >&2; \
    exit 2; }; \
  DEBIAN_FRONTEND=noninteractive $(RETRY) sh -c \
    'apt-get -qq $(APT_OPTIONS) update && apt-get -qq $(APT_OPTIONS) install -y --no-install-recommends "$$@" >/dev/null' \
    apt-get $(3)
APT_OPTIONS := -o Acquire::Retries=3 -o Acquire::http::Timeout=60 -o Acquire::https::Timeout=60 -o DPkg::Lock::Timeout=300

# Whether what a target needs is on this machine.
has_postgres = { command -v initdb || ls /usr/lib/postgresql/*/bin/initdb; } >/dev/null 2>&1
has_mpi = mpirun --version 2>/dev/null | grep -q '(Open MPI) 4'
has_podman = { command -v podman && command -v runc && test -x /usr/lib/podman/netavark; } >/dev/null
PODMAN_PACKAGES := podman runc uidmap ca-certificates netavark aardvark-dns iptables
has_chromium = command -v chromium >/dev/null
has_npm = command -v npm >/dev/null
has_administration = { command -v systemd-analyze && command -v systemd-socket-activate && \
  { command -v rsyslogd || test -x /usr/sbin/rsyslogd; } && \
  { command -v nginx || test -x /usr/sbin/nginx; }; } >/dev/null

# What all suites of `.ci/run` need of Debian, in one installation.
debian-packages:
	@packages=; \
	$(has_postgres) || packages="$$packages postgresql"; \
	$(has_mpi) || packages="$$packages openmpi-bin"; \
	$(has_podman) || packages="$$packages $(PODMAN_PACKAGES)"; \
	$(has_chromium) || packages="$$packages chromium"; \
	$(has_npm) || packages="$$packages npm"; \
	$(has_administration) || packages="$$packages systemd rsyslog nginx-light"; \
	[ -z "$$packages" ] || { \
	  echo "installing$$packages"; \
	  $(call apt_get,Debian packages are not,$${packages# },$$packages); }

# Everything from a registry, before any test: then no test waits for one. Without the group `fuzz`,
# which makes every start of pytest slower: `make test-fuzz` installs it.
install-all:
	@$(MAKE) -s setup
	@$(MAKE) -s $(VENV)/.group-object-store $(VENV)/.extra-postgres $(VENV)/.group-ui $(VENV)/.group-docs $(VENV)/.group-compose
	@$(MAKE) -s debian-packages slurm-programs ray-programs
	@$(MAKE) -s -j2 test-environments widgets newest-clients azurite oidc-provider yaml-language-server
	@$(MAKE) -s versions

# What tests/locks pins, for tests that would build it themselves.
test-environments: setup
	@$(BIN)/python tools/build_test_environments.py

versions:
	@$(BIN)/python tools/print_versions.py

demo: setup
	@$(BIN)/yard demo

# More processes than cores: many tests wait for programs that they start. What holds no quick test
# need not be collected by each of them.
NONE_QUICK := $(foreach folder,style tooling smoke end_to_end containers contracts_azure faults fuzz gpu ray \
  slurm widgets zero cgroup_machine,--ignore tests/$(folder))
test: setup
	$(PYTEST) -n 3 --dist loadfile -m '$(QUICK)' $(NONE_QUICK)

# Until 0.1.0 is tagged: what the tests of upgrades open for ever.
record-home: setup postgres
	PYTHONPATH=tests $(BIN)/python -m recorded_home.record

# What starts many programs, or waits for some seconds.
test-slow: setup
	TORCHYARD_TEST_SERVICES=required $(PYTEST) -n 3 --dist loadfile --durations=15 --timeout=600 \
	  -m 'slow and not (end_to_end or postgres or faults or fuzz or object_store or long or containers or azure or widgets or web_page or oidc or runner or ray or slurm or torch)'

# The paths keep pytest from collecting everything. CI has what a laptop may lack.
SMOKE := tests/smoke tests/containers/test_images_with_podman.py tests/runner/test_takeovers.py \
  tests/sign_in/test_sign_in.py tests/widgets/test_widgets.py tests/ray/test_whole_jobs_on_ray.py \
  tests/slurm/test_whole_jobs_on_slurm.py tests/web_page/test_flow.py tests/end_to_end/test_sweeps.py \
  tests/end_to_end/test_resumed_training.py tests/end_to_end/test_model_to_onnx.py \
  tests/endpoints/running/test_endpoints_live.py tests/interactive/test_job_services.py \
  tests/batch_endpoints/running/test_batch_endpoints_live.py
smoke: setup
	TORCHYARD_TEST_RAY_HOME=.test-ray TORCHYARD_TEST_SERVICES=$(if $(CI),required) $(PYTEST) -n 3 --dist loadfile --durations=20 -m smoke $(SMOKE)

# Everything, for hours: each suite goes on after a red one. SUITES='test-e2e test-faults' for some.
SUITES ?= check test smoke test-postgres test-object-store test-azure test-containers test-widgets \
  test-oidc test-runner test-slow test-e2e test-e2e-postgres test-faults test-fuzz \
  test-ui ray slurm test-train test-layers
test-all: install-all
	$(BIN)/python tools/run_suites.py $(SUITES)

# A target of its own, because measuring makes the tests take more than half as long again.
coverage: setup
	$(PYTEST) -n 3 --dist loadfile -m '$(QUICK)' $(NONE_QUICK) --cov --cov-report=
	@echo "The quick tests run $$($(BIN)/coverage report --format=total) % of the lines in src/torchyard."
	@echo 'See which they miss: $(BIN)/coverage report --show-missing'

# More processes than cores: its tests mostly wait. In the order of files, so that the longest ones
# begin early.
test-e2e: setup mpi administration yaml-language-server
	TORCHYARD_TEST_SERVICES=required $(PYTEST) -n 4 --dist loadfile --no-loadscope-reorder --durations=15 --timeout=600 \
	  -m 'end_to_end and not (postgres or faults or fuzz or object_store or long or containers or azure or widgets or web_page or oidc)'

# Minutes of load each, for a quiet machine; CI leaves them out.
test-long: setup
	$(PYTEST) -m long

# cgroups of version 2 on a kernel of its own, in QEMU; two minutes, and root to install it.
KERNEL := .cgroup-machine
$(KERNEL)/boot:
	command -v qemu-system-x86_64 >/dev/null || apt-get install -y --no-install-recommends qemu-system-x86
	mkdir -p $(KERNEL)
	cd $(KERNEL) && apt-get download "$$(apt-cache depends linux-image-cloud-amd64 | awk '/Depends:/ {print $$2; exit}')"
	dpkg -x $(KERNEL)/linux-image-*.deb $(KERNEL)

test-cgroups: setup $(KERNEL)/boot
	TORCHYARD_TEST_KERNEL='$(CURDIR)/$(KERNEL)/boot/vmlinuz-*' TORCHYARD_TEST_SERVICES=required \
	  $(PYTEST) -m long tests/cgroup_machine

test-faults: setup
	$(PYTEST) -s -m faults

# tests/causes, with transcripts and the table: minutes, on a quiet machine.
LAUNCHER ?= torchyard
causes: setup
	PYTHONPATH=tests $(BIN)/python -m causes $(LAUNCHER)

# On a real Ray and a real Slurm, an hour each: KILLS=200 SEED=7 ENGINES='ray slurm joined'.
KILLS ?= 200
SEED ?= 1818
ENGINES ?= ray slurm joined
kills-on-engines: setup ray-programs slurm-programs
	for engine in $(ENGINES); do TORCHYARD_TEST_RAY_HOME=.test-ray \
	  $(BIN)/python tests/faults/engine_kills.py $$engine --kills $(KILLS) --seed $(SEED) || exit 1; done

# TORCHYARD_FUZZ_EXAMPLES=200 for the long form.
test-fuzz: setup $(VENV)/.group-fuzz
	$(PYTEST) -m fuzz

test-containers: setup podman registry postgres $(VENV)/.group-compose
	TORCHYARD_TEST_SERVICES=required $(PYTEST) -m 'containers and not long'

# Each client of the matrix gets its own environment, created once.
azure-clients: setup
	@$(BIN)/python tests/contracts_azure/client_venvs.py

# Of each SDK, for the smoke suite and the tests of engines.
newest-clients: setup
	@$(BIN)/python tests/contracts_azure/client_venvs.py azure-ai-ml-1.35 azureml-core-1.61

test-azure: azure-clients podman
	TORCHYARD_TEST_SERVICES=required $(PYTEST) -n 2 --dist loadfile --durations=10 -m 'azure and not long'

# TORCHYARD_KEEP_SCREENSHOTS=FOLDER keeps screenshots; TORCHYARD_WRITE_PICTURES=1 writes docs/pictures.
test-widgets: widgets
	TORCHYARD_TEST_SERVICES=required $(PYTEST) --durations=5 -m widgets

# TORCHYARD_CHECKPOINT_KILLS=300 and TORCHYARD_EXAMPLE_KILLS=20 for the long form of random kills.
test-train: setup $(VENV)/.group-torch
	TORCHYARD_TEST_SERVICES=required $(PYTEST) -n 2 --dist loadfile --durations=5 -m torch tests/train tests/compat/nebula tests/worker/in_rank/test_rehearsed_deepspeed.py

# The layers for torch-ort and ort-moe, by hand.
test-layers: setup $(VENV)/.group-torch
	TORCHYARD_TEST_SERVICES=required $(PYTEST) --durations=5 -m torch tests/compat

# DeepSpeed, fairscale and ONNX Runtime in an environment of their own, with torch 2.13 for the CPU
# where pip's sources have it. It is kept in .deepspeed; the first time takes some minutes.
test-deepspeed: setup
	TORCHYARD_TEST_SERVICES=required TORCHYARD_TEST_DEEPSPEED='$(CURDIR)/.deepspeed' \
	  $(PYTEST) --durations=10 -m long tests/zero

# Skipped with the reason where torch finds no CUDA device; `TORCHYARD_GPU_TESTS_DEVICE=cpu make gpu`
# tries the same programs on the CPU.
gpu: setup $(VENV)/.group-torch
	$(PYTEST) -s --durations=5 -m gpu tests/gpu

# It creates users that begin with `tyt-`, and removes them; systemd brings systemd-socket-activate.
test-runner: setup postgres administration
	@[ "$$(id -u)" = 0 ] || { echo 'error: these tests create Unix users, and need root' >&2; exit 2; }
	TORCHYARD_TEST_SERVICES=required $(PYTEST) -n 2 --dist loadfile --durations=5 -m 'runner and not ray'

# TORCHYARD_KILL_ROUNDS=200 for the long form of its random kills.
slurm: setup slurm-programs newest-clients
	TORCHYARD_TEST_SERVICES=required $(PYTEST) --durations=5 -m 'slurm and not long'

# The tests start them with folders and ports of their own; MariaDB keeps Slurm's accounts.
slurm-programs:
	@(PATH="$$PATH:/usr/sbin"; \
	  for program in slurmctld slurmd slurmdbd sbatch munged mariadbd my_print_defaults; do \
	    command -v $$program >/dev/null || exit 1; done) || { \
	  $(call apt_get,Slurm is not,slurm-wlm slurmdbd munge mariadb-server, \
	    slurmctld slurmd slurm-client slurmdbd slurm-wlm-basic-plugins munge mariadb-server-core \
	    mariadb-client-core); }

# Ray's own environment is kept in .test-ray; Redis keeps a head's state over its restart; sshd is
# started by the tests with keys, ports and folders of its own.
ray: setup ray-programs newest-clients
	TORCHYARD_TEST_SERVICES=required TORCHYARD_TEST_RAY_HOME=.test-ray \
	  $(PYTEST) --durations=5 -m 'ray and not long'

ray-programs:
	@(PATH="$$PATH:/usr/sbin"; command -v redis-server && command -v sshd) >/dev/null || { \
	  $(call apt_get,Redis or sshd are not,redis-server openssh-server, \
	    redis-server openssh-server openssh-client); }

# JupyterLab with azureml-widgets, one with anywidget, and a browser.
widgets: setup chromium
	@$(BIN)/python tests/contracts_azure/client_venvs.py azureml-widgets-1.62 jupyter-anywidget

chromium:
	@$(has_chromium) || { $(call apt_get,Chromium is not,chromium,chromium); }

# The web page: its sources are in ui/, what is built of them is committed.
NPM := $(BIN)/python tools/run_npm.py

ui/node_modules/.package-lock.json: ui/package-lock.json tools/run_npm.py | $(INSTALLED)
	@$(RETRY) $(NPM) ci --loglevel=error --no-fund --no-audit --no-progress --fetch-timeout=60000
	@touch $@

ui: setup ui/node_modules/.package-lock.json
	@$(NPM) run --silent build

# TORCHYARD_KEEP_SCREENSHOTS=FOLDER keeps what a failed test saw.
test-ui: setup chromium $(VENV)/.group-ui $(VENV)/.group-docs ui/node_modules/.package-lock.json
	@$(NPM) run --silent check
	@$(NPM) test --silent
	TORCHYARD_TEST_SERVICES=required $(PYTEST) --durations=5 -m web_page

# Those of the documentation go into docs/pictures, all others into PICTURES.
PICTURES ?= $(CURDIR)/.ui-pictures
ui-pictures: setup chromium $(VENV)/.group-ui
	TORCHYARD_PICTURES='$(PICTURES)' TORCHYARD_TEST_SERVICES=required \
	  $(PYTEST) -m web_page tests/web_page/take_pictures.py

# Write docs/reference/azure-ml.md from what the clients did.
azure-page: azure-clients
	TORCHYARD_WRITE_AZURE_PAGE=1 $(PYTEST) -m azure -k the_page

# S3 is moto's, from PyPI; Azure Blob is Azurite's, from npm.
test-object-store: setup azurite $(VENV)/.group-object-store
	TORCHYARD_TEST_SERVICES=required $(PYTEST) -m 'object_store and not postgres'

# npm installs nothing but what the lock file pins.
npm_ci = $(has_npm) || { \
    echo 'error: `npm` is not on this machine' >&2; \
    echo 'hint: $(1) comes from npm: install it with `apt-get install npm`' >&2; \
    exit 2; }; \
  mkdir -p $(2) && cp tests/npm/$(3)/package.json tests/npm/$(3)/package-lock.json $(2) && \
  $(RETRY) npm ci --loglevel=error --no-fund --no-audit --no-progress --fetch-timeout=60000 --prefix $(2)

azurite: .azurite/.installed

.azurite/.installed: tests/npm/azurite/package-lock.json
	@$(call npm_ci,Azurite$(comma) which plays Azure Blob in tests$(comma),.azurite,azurite)
	@touch $@

yaml-language-server: .yaml-language-server/.installed

.yaml-language-server/.installed: tests/npm/yaml-language-server/package-lock.json
	@$(call npm_ci,the YAML language server,.yaml-language-server,yaml-language-server)
	@touch $@

test-postgres: setup postgres
	TORCHYARD_TEST_SERVICES=required $(PYTEST) -n 2 --dist loadfile \
	  -m 'postgres and not (object_store or end_to_end or faults or azure)'

# What leans on the database most.
test-postgres-core: setup postgres
	TORCHYARD_TEST_SERVICES=required $(PYTEST) -n 2 --dist loadfile -m 'postgres and not (object_store or end_to_end or faults or azure)' \
	  tests/base tests/servers tests/jobs/records tests/jobs/scheduling tests/jobs/history

# ONLY='digits or tried_again' runs these alone.
test-e2e-postgres: setup postgres mpi
	TORCHYARD_TEST_SERVICES=required TORCHYARD_TEST_DATABASE=postgres \
	  $(PYTEST) -n 4 --dist loadfile --no-loadscope-reorder --durations=15 --timeout=600 \
	  -m 'end_to_end and not (object_store or long or containers or azure or widgets or web_page)' -k 'not sqlite and ($(or $(ONLY),test))'

# Public notebooks of Azure ML: REPOSITORY is a bare clone, SUITE one of tools/notebooks.yml, ONLY
# paths in it.
notebooks: setup
	@[ -n '$(REPOSITORY)' ] || { echo 'error: REPOSITORY is not set' >&2; \
	  echo 'hint: make notebooks SUITE=sdk-v1 REPOSITORY=FOLDER.git' >&2; exit 2; }
	@$(BIN)/python tests/contracts_azure/client_venvs.py notebooks-$(SUITE:-pipelines=)
	$(BIN)/python tools/run_notebooks.py $(SUITE) --repository '$(REPOSITORY)' \
	  --work .notebooks $(ONLY)

test-oidc: setup oidc-provider
	TORCHYARD_TEST_SERVICES=required $(PYTEST) --durations=5 -m 'oidc and not postgres'

oidc-provider: .oidc-provider/.installed

.oidc-provider/.installed: tests/npm/oidc-provider/package-lock.json
	@$(call npm_ci,the provider that people sign in with in tests,.oidc-provider,oidc-provider)
	@touch $@

# What a server is run with: systemd's tools, a syslog for the audit, and a proxy before it.
administration:
	@$(has_administration) || { \
	  $(call apt_get,systemd's tools$(comma) rsyslog or nginx are not,systemd rsyslog nginx-light,systemd rsyslog nginx-light); }

# The tests start a server of their own; they need its programs and the driver.
postgres: setup $(VENV)/.extra-postgres
	@$(has_postgres) || { $(call apt_get,PostgreSQL is not,postgresql,postgresql); }

# For jobs with `distribution: {type: mpi}`; mpi4py comes with the jobs' own environment.
mpi:
	@$(has_mpi) || { $(call apt_get,Open MPI 4 is not,openmpi-bin,openmpi-bin); }

# uidmap is for those who are not root; the network is for the compose file, whose containers know
# each other by name.
podman:
	@$(has_podman) || { \
	  $(call apt_get,podman or its network is not,$(PODMAN_PACKAGES),$(PODMAN_PACKAGES)); }

# Docker's own registry, which the tests start with a folder and a port of its own, and what pushes.
registry:
	@command -v docker-registry >/dev/null && command -v skopeo >/dev/null || { \
	  $(call apt_get,docker-registry or skopeo are not,docker-registry skopeo,docker-registry skopeo); }

# The cheap part of the gate, all of it: a merge that is wrong by its text is red here.
check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy --num-workers 2
	$(BIN)/mypy --config-file tests/contracts_azure/mypy.ini
	$(BIN)/lint-imports
	@$(BIN)/python tools/count_modules.py
	$(PYTEST) -n 2 --dist loadfile -m '$(QUICK)' tests/style tests/tooling

# What a merge needs: formats, generated pages, and the sentences that users see. Read their diff.
fix: format docs
	rm -f tests/sentences.yml
	TORCHYARD_WRITE_SENTENCES=1 $(PYTEST) -q -m "sentences and not postgres"

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: setup
	$(BIN)/python -m torchyard.jobs.spec.reference > docs/reference/job-file.md
	$(BIN)/python -m torchyard.sweeps.spec.reference > docs/reference/sweep-file.md
	$(BIN)/python -m torchyard.pipelines.spec.reference > docs/reference/pipeline-file.md
	$(BIN)/python -m torchyard.endpoints.spec.reference > docs/reference/endpoint-file.md
	$(BIN)/python -m torchyard.batch_endpoints.spec.reference > docs/reference/batch-endpoint-file.md
	$(BIN)/python tools/schema_files.py
	$(BIN)/python tools/failure_codes_page.py > docs/reference/failure-codes.md
	$(BIN)/python tools/variables_page.py > docs/reference/variables.md
	$(BIN)/python tools/python_sdk_page.py > docs/reference/python-sdk.md
	$(BIN)/python tools/curated_page.py > docs/reference/curated-environments.md
	$(BIN)/python tools/ownership_page.py > docs/reference/ownership.md

# A broken link fails it, and whatever a page would load from another host.
docs-site: setup $(VENV)/.group-docs
	@$(BIN)/python tools/docs_site.py

# Record what a build of each curated environment contains; see docs/decisions/0021.
# To resolve an environment's requirements again, remove its contents.json first.
CURATED := acpt-pytorch-2.13-cpu acpt-pytorch-2.0-cuda11.7 acpt-pytorch-1.12-cuda10.2 sklearn-1.5 sklearn-1.1 sklearn-0.24-py38 lightgbm-3.3 tensorflow-2.16-cuda12 \
  tensorflow-2.11-py310 minimal-py310 pytorch-1.6-py38 pytorch-1.10-py38
CURATED_HOME ?= .curated

curated: setup
	$(BIN)/python -m torchyard.environments.contents $(CURATED_HOME) $(CURATED)

# Do one real step of each component, compare each label with what is on disk, write tests.json.
acpt-selftest: setup
	$(BIN)/python -m torchyard.environments.selftest $(CURATED_HOME) $(CURATED)

# Those that take a GPU and 10 GB each, where nobody builds them: resolved, not built.
LOCKED := acpt-pytorch-2.15-cuda13.2 acpt-pytorch-2.14-cuda13.0 acpt-pytorch-2.13-cuda13.0 acpt-pytorch-2.8-cuda12.8

curated-locks: setup
	$(BIN)/python tools/lock_curated.py $(LOCKED)

# Those that need no arguments; one that fails hides none behind it.
bench: setup
	@$(BIN)/python benchmarks/all.py

# For every Python and system at once, without the addresses of this machine's package indexes.
# requirements-all.lock comes first: it is what requirements.lock has to agree with.
# uv checks the hashes when it installs; torch is in none of these locks.
LOCK := $(UV) pip compile --quiet --universal --python-version 3.10 --generate-hashes \
  --no-emit-index-url --no-emit-find-links --custom-compile-command 'make lock'

lock: setup
	$(LOCK) --all-extras --group dev --group compose --group docs --group fuzz --group object-store --group ui --group node --output-file requirements-all.lock pyproject.toml
	$(LOCK) --group dev -c requirements-all.lock --output-file requirements.lock pyproject.toml
	$(LOCK) --output-file requirements-build.lock requirements-build.in
	$(BIN)/python tools/lock_test_environments.py

# Publishes nothing; see docs/contributing/releasing.md.
release: setup
	@$(BIN)/python tools/prepare_release.py '$(VERSION)'

clean:
	[ ! -d .test-environments ] || find .test-environments -type d -exec chmod u+w {} +
	rm -rf .test-environments .test-ray .docs-site .deepspeed $(VENV) .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis \
	  .coverage dist
	find src tests tools examples benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
