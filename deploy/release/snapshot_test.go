package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// built is a release that was built: make release-snapshot names its directory.
type built struct {
	release
	directory string
}

func theBuilt(t *testing.T) built {
	t.Helper()
	b := built{directory: os.Getenv("LODESTONE_RELEASE")}
	if b.directory == "" {
		t.Skip("LODESTONE_RELEASE names no release: make release-snapshot builds one and tests it")
	}
	b.version = os.Getenv("LODESTONE_VERSION")
	require.NotEmpty(t, b.version, "LODESTONE_VERSION is its version")
	return b
}

func (b built) content(t *testing.T, name string) []byte {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(b.directory, name))
	require.NoError(t, err)
	return content
}

// unpacked unpacks a compressed archive, and returns where.
func (b built) unpacked(t *testing.T, name string) string {
	t.Helper()
	to := t.TempDir()
	plain := unzip(t, b.content(t, name))
	extract(t, bytes.NewReader(plain), func(header *tar.Header, _ []byte) {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(to, header.Name)), 0o755))
	})
	writeOut(t, to, plain)
	return to
}

// missing skips a test for want of something, or fails it where all must be tested.
func missing(t *testing.T, format string, args ...any) {
	t.Helper()
	if os.Getenv("LODESTONE_COMPLETE") != "" {
		require.Fail(t, fmt.Sprintf(format, args...))
	}
	t.Skipf(format, args...)
}

// emulator is the program that runs those of an architecture here; empty where none is needed.
func emulator(t *testing.T, p platform) string {
	t.Helper()
	if p.arch == runtime.GOARCH {
		return ""
	}
	name := map[string]string{"amd64": "qemu-x86_64-static", "arm64": "qemu-aarch64-static"}[p.arch]
	path, err := exec.LookPath(name)
	if err != nil {
		missing(t, "%s is not installed, so programs for %s are not started: install qemu-user-static", name, p)
	}
	return path
}

func run(t *testing.T, command *exec.Cmd) string {
	t.Helper()
	output, err := command.CombinedOutput()
	require.NoError(t, err, "%v: %s", command.Args, output)
	return string(output)
}

func TestASnapshotIsWhatIsListedAndItsChecksumsHold(t *testing.T) {
	b := theBuilt(t)
	entries, err := os.ReadDir(b.directory)
	require.NoError(t, err)
	var there, listed []string
	for _, entry := range entries {
		there = append(there, entry.Name())
	}
	var sums strings.Builder
	for _, f := range b.files() {
		listed = append(listed, f.name)
		if f.name != b.checksums() {
			fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(b.content(t, f.name)), f.name)
		}
	}
	assert.ElementsMatch(t, listed, there)
	assert.Equal(t, sums.String(), string(b.content(t, b.checksums())))
}

func TestTheArchivesOfASnapshotHaveAPluginThatSaysItsVersion(t *testing.T) {
	b := theBuilt(t)
	for _, p := range pluginPlatforms {
		t.Run(p.String(), func(t *testing.T) {
			to := b.unpacked(t, b.plugin(p))
			assert.FileExists(t, filepath.Join(to, "LICENSE"))
			program := filepath.Join(to, p.executable("kubectl-lodestone"))
			checkBuild(t, p, program)
			if p.os != "linux" {
				return
			}
			args := []string{program, "version", "--client"}
			if qemu := emulator(t, p); qemu != "" {
				args = append([]string{qemu}, args...)
			}
			says := run(t, exec.CommandContext(t.Context(), args[0], args[1:]...))
			assert.Equal(t, fmt.Sprintf("kubectl-lodestone %s (%s, %s)\n", b.version, goVersion(t), p), says)
		})
	}
}

// goVersion is the one that the Dockerfile names.
func goVersion(t *testing.T) string {
	t.Helper()
	version, err := toolchain(read(t, "Dockerfile"))
	require.NoError(t, err)
	return version
}

// checkBuild checks for what, by which Go and how a program was built.
func checkBuild(t *testing.T, p platform, program string) {
	t.Helper()
	info, err := buildinfo.ReadFile(program)
	require.NoError(t, err)
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	assert.Equal(t, goVersion(t), info.GoVersion, program)
	assert.Equal(t, platform{settings["GOOS"], settings["GOARCH"]}, p, program)
	assert.Equal(t, "0 true", settings["CGO_ENABLED"]+" "+settings["-trimpath"], program)
	content, err := os.ReadFile(program)
	require.NoError(t, err)
	home, err := os.UserHomeDir()
	require.NoError(t, err)
	assert.False(t, bytes.Contains(content, []byte(filepath.Join(home, "go"))), "%s names a folder of the machine that built it", program)
}

func TestTheManifestForKrewOfASnapshotNamesItsArchives(t *testing.T) {
	b := theBuilt(t)
	checkKrew(t, b.release, string(b.content(t, b.krew())), func(p platform) string {
		return fmt.Sprintf("%x", sha256.Sum256(b.content(t, b.plugin(p))))
	})
}

func TestTheChartOfASnapshotLints(t *testing.T) {
	b := theBuilt(t)
	helm := os.Getenv("HELM")
	require.NotEmpty(t, helm, "HELM names no program: make release-snapshot does that")
	archive := filepath.Join(b.directory, b.chart())
	assert.Contains(t, run(t, exec.CommandContext(t.Context(), helm, "lint", "--strict", archive)), "1 chart(s) linted, 0 chart(s) failed")
	manifests := run(t, exec.CommandContext(t.Context(), helm, "template", "lodestone", archive, "--kube-version", "v1.36.3"))
	assert.Contains(t, manifests, "image: "+b.image("provisioner")+"\n")
}

// imageOfTree is an image in manifests that were built from the tree.
var imageOfTree = regexp.MustCompile(`(?m)(` + regexp.QuoteMeta(registry) + `/lodestone-[a-z-]+:)v\S+$`)

func TestTheKustomizationsOfASnapshotAreThoseOfTheTree(t *testing.T) {
	b := theBuilt(t)
	unpacked := filepath.Join(b.unpacked(t, b.kustomize()), "lodestone-"+b.version, "deploy")
	render := func(directory string) string {
		resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), directory)
		require.NoError(t, err, directory)
		text, err := resources.AsYaml()
		require.NoError(t, err)
		return string(text)
	}
	for _, inside := range []string{"overlays/release", "overlays/release-remote", "overlays/managed", "remote-volumes", "network/program"} {
		text := render(filepath.Join(unpacked, inside))
		assert.Equal(t, imageOfTree.ReplaceAllString(render(filepath.Join("..", inside)), "${1}"+b.version), text, inside)
		assert.Equal(t, strings.HasPrefix(inside, "overlays/"), strings.Contains(text, registry+"/"), inside)
	}
}

func TestTheImagesOfASnapshotStart(t *testing.T) {
	b := theBuilt(t)
	images := readBundle(t, filepath.Join(b.directory, b.bundle()))
	assert.Equal(t, images.list, string(b.content(t, b.imageList())))
	machines := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}
	for _, p := range imagePlatforms {
		for _, program := range programs {
			t.Run(program+" "+p.String(), func(t *testing.T) {
				root := images.unpack(t, b.image(program), p)
				checkBuild(t, p, filepath.Join(root, "lodestone-"+program))
				started := map[string][]string{"lodestone-" + program + " version " + b.version + "\n": {"/lodestone-" + program, "--version"}}
				if program == "mover" {
					started["rsync  version "] = []string{"/usr/bin/rsync", "--version"}
					started["restic "] = []string{"/usr/bin/restic", "version"}
				}
				for _, args := range started {
					file, err := elf.Open(filepath.Join(root, args[0]))
					require.NoError(t, err)
					assert.Equal(t, machines[p.arch], file.Machine, args[0])
					require.NoError(t, file.Close())
				}
				if os.Geteuid() != 0 {
					missing(t, "what is in an image is started in it as root only")
				}
				qemu := emulator(t, p)
				for says, args := range started {
					if qemu != "" {
						program, err := os.ReadFile(qemu)
						require.NoError(t, err)
						require.NoError(t, os.WriteFile(filepath.Join(root, "emulator"), program, 0o700)) //nolint:gosec // it is to run
						args = append([]string{"/emulator"}, args...)
					}
					command := exec.CommandContext(t.Context(), args[0], args[1:]...)
					command.Dir, command.SysProcAttr = "/", &syscall.SysProcAttr{Chroot: root}
					assert.True(t, strings.HasPrefix(run(t, command), says), args)
				}
			})
		}
	}
}

func TestContainerdImportsTheBundleOfASnapshot(t *testing.T) {
	b := theBuilt(t)
	if _, err := exec.LookPath("containerd"); err != nil || os.Geteuid() != 0 {
		missing(t, "containerd is not installed, or this is not root")
	}
	work := t.TempDir()
	socket := filepath.Join(work, "socket")
	daemon := exec.CommandContext(t.Context(), "containerd", "-c", "/dev/null", "--root", filepath.Join(work, "root"), "--state",
		filepath.Join(work, "state"), "--address", socket)
	var log bytes.Buffer
	daemon.Stdout, daemon.Stderr = &log, &log
	daemon.Cancel = func() error { return daemon.Process.Signal(syscall.SIGTERM) }
	require.NoError(t, daemon.Start())
	t.Cleanup(func() {
		_ = daemon.Process.Signal(syscall.SIGTERM)
		_ = daemon.Wait()
	})
	ctr := func(args ...string) *exec.Cmd {
		return exec.CommandContext(t.Context(), "ctr", append([]string{"-a", socket, "-n", "k8s.io"}, args...)...)
	}
	require.Eventually(t, func() bool { return ctr("version").Run() == nil }, time.Minute, 200*time.Millisecond,
		"containerd does not answer: %s", &log)
	run(t, ctr("images", "import", "--all-platforms", "--no-unpack", filepath.Join(b.directory, b.bundle())))
	var list strings.Builder
	for line := range strings.Lines(run(t, ctr("images", "check"))) {
		fields := strings.Fields(line)
		if !strings.HasPrefix(fields[0], registry) {
			continue
		}
		assert.Equal(t, "complete", fields[3], line)
		fmt.Fprintf(&list, "%s@%s\n", fields[0], fields[2])
	}
	assert.ElementsMatch(t, strings.Split(string(b.content(t, b.imageList())), "\n"), strings.Split(list.String(), "\n"))
}

func TestTheBillOfASnapshotHasItsPrograms(t *testing.T) {
	b := theBuilt(t)
	d, locators := checkBill(t, string(b.content(t, b.sbom())))
	of := []string{"pkg:golang/k8s.io/client-go@", "pkg:golang/github.com/restic/restic@", "pkg:golang/stdlib@"}
	for _, name := range append(of, debianNames...) {
		assert.Contains(t, strings.Join(locators, "\n"), name)
	}
	sums := map[string]string{}
	for _, p := range d.Packages {
		if len(p.Checksums) > 0 {
			sums[p.Name] = p.Checksums[0].Value
		}
	}
	for _, p := range pluginPlatforms {
		content, err := os.ReadFile(filepath.Join(b.unpacked(t, b.plugin(p)), p.executable("kubectl-lodestone")))
		require.NoError(t, err)
		assert.Equal(t, fmt.Sprintf("%x", sha256.Sum256(content)), sums["kubectl-lodestone ("+p.String()+")"], p)
	}
}
