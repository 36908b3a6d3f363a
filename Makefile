# Two commands do everything on a fresh Debian 12 machine: `make demo` and `make test`. Each installs the Debian
# packages it needs (as root or with sudo), builds and runs; when nothing changed both are quick.
BUILD ?= build
PREFIX ?= /usr/local
JOBS ?= $(shell nproc)
PACKAGES := g++ cmake ninja-build pkg-config ccache mold clang-format \
            libfmt-dev nlohmann-json3-dev libcli11-dev libhwy-dev libxxhash-dev libpcre2-dev liburing-dev \
            zlib1g-dev libzstd-dev libsnappy-dev \
            libopenmpi-dev openmpi-bin libgtest-dev
# The report page is tested in a browser, disks that stop answering are FUSE file systems.
TEST_PACKAGES := chromium libfuse3-dev
BENCH_PACKAGES := libdnnl-dev libopenblas-dev
FUZZ_PACKAGES := clang libclang-rt-14-dev
# Of one input: long enough for what grows with its square to show, and no more memory or time than a user has.
FUZZ_LIMITS := -max_len=65536 -rss_limit_mb=1024 -malloc_limit_mb=512 -timeout=10
SUDO := $(shell [ "$$(id -u)" = 0 ] || echo sudo)

.PHONY: help build install demo test test-full asan tsan fuzz bench format format-check packages clean
help:
	@echo "make demo       build, then train a small model on the CPU (no input needed)"
	@echo "make test       build and run the tests"
	@echo "make test-full  whole equivalence matrix, sanitizers and fuzzers"
	@echo "make build      leave the binary at $(BUILD)/zeno"
	@echo "make install    the binary, the library and its headers under PREFIX ($(PREFIX))"
	@echo "make bench      build the benchmarks (docs/performance.md says how to run each)"

# Installs only what is missing, so that a second run does not touch apt.
define apt_install
	@missing=$$(dpkg-query -W -f '$${db:Status-Abbrev} $${Package}\n' $(1) 2>&1 | sed -n 's/^.*no packages found matching //p;s/^[^i]. \(.*\)/\1/p'); \
	if [ -n "$$missing" ]; then echo "installing:" $$missing; \
	  $(SUDO) apt-get update -qq && DEBIAN_FRONTEND=noninteractive $(SUDO) apt-get install -y -qq --no-install-recommends $$missing >/dev/null; fi
endef

packages:
	$(call apt_install,$(PACKAGES))

configure = cmake -S . -B $(1) -G Ninja -DCMAKE_BUILD_TYPE=Release $(2) >$(1).log 2>&1 || { cat $(1).log; exit 1; }

build: packages
	@$(call configure,$(BUILD),-DZENO_TESTS=OFF -DZENO_BENCH=OFF)
	@ninja -C $(BUILD) -j $(JOBS) zeno_cli

# DESTDIR, for packages, is read by cmake.
install: build
	@cmake --install $(BUILD) --prefix $(PREFIX)

# The demo runs on the CPU: a build without CUDA is there minutes sooner.
demo: packages
	@$(call configure,$(BUILD)-demo,-DZENO_TESTS=OFF -DZENO_BENCH=OFF -DZENO_CUDA=OFF)
	@ninja -C $(BUILD)-demo -j $(JOBS) zeno_cli
	@$(BUILD)-demo/zeno demo

test: packages format-check
	$(call apt_install,$(TEST_PACKAGES))
	@$(call configure,$(BUILD),-DZENO_TESTS=ON -DZENO_BENCH=OFF)
	@ninja -C $(BUILD) -j $(JOBS)
	@ctest -j 3 --test-dir $(BUILD) --output-on-failure

# Without ZENO_UNITY, so that every file is also compiled alone.
test-full: packages asan tsan fuzz
	$(call apt_install,$(TEST_PACKAGES))
	@$(call configure,$(BUILD)-full,-DZENO_FULL_TESTS=ON -DZENO_UNITY=OFF -DZENO_BENCH=OFF)
	@ninja -C $(BUILD)-full -j $(JOBS)
	@ctest -j 3 --test-dir $(BUILD)-full --output-on-failure

asan: packages
	$(call apt_install,$(TEST_PACKAGES))
	@$(call configure,$(BUILD)-asan,-DZENO_SANITIZE=address$(comma)undefined -DZENO_BENCH=OFF)
	@ninja -C $(BUILD)-asan -j $(JOBS)
	@ctest -j 3 --test-dir $(BUILD)-asan --output-on-failure

# Between threads of a rank that talk to other hosts, MPI hands messages over in ways that cannot be seen from
# outside Open MPI: their contract is left to the other builds.
tsan: packages
	$(call apt_install,$(TEST_PACKAGES))
	@$(call configure,$(BUILD)-tsan,-DZENO_SANITIZE=thread -DZENO_BENCH=OFF)
	@ninja -C $(BUILD)-tsan -j $(JOBS)
	@TSAN_OPTIONS=suppressions=$(CURDIR)/tests/tsan_suppressions.txt GTEST_FILTER='-*/MpiContract*' \
	  ctest -j 3 --test-dir $(BUILD)-tsan --output-on-failure

fuzz: packages
	$(call apt_install,$(FUZZ_PACKAGES))
	@$(call configure,$(BUILD)-fuzz,-DCMAKE_CXX_COMPILER=clang++ -DZENO_FUZZ=ON -DZENO_TESTS=OFF -DZENO_BENCH=OFF)
	@ninja -C $(BUILD)-fuzz -j $(JOBS) fuzzers
	@for f in $(BUILD)-fuzz/tests/fuzz/*_fuzz; do echo "$$f"; $$f $(FUZZ_LIMITS) -max_total_time=60 -print_final_stats=0 -verbosity=0 || exit 1; done

bench: packages
	$(call apt_install,$(BENCH_PACKAGES))
	@$(call configure,$(BUILD),-DZENO_TESTS=OFF -DZENO_BENCH=ON)
	@ninja -C $(BUILD) -j $(JOBS)

sources = $(shell find zeno cli tests bench examples -name '*.h' -o -name '*.cpp' -o -name '*.cu')
format:
	@clang-format -i $(sources)
format-check: packages
	@clang-format --dry-run -Werror $(sources)

clean:
	@rm -rf $(BUILD) $(BUILD)-* $(BUILD).log

comma := ,
