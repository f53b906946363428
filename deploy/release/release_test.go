package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	spdxjson "github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx"
	"github.com/spdx/tools-golang/spdx/v2/common"
	"github.com/spdx/tools-golang/spdxlib"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/install"
)

var snapshot = release{version: "v9.8.7-rc.1", commit: "0123456789ab", time: time.Unix(1_700_000_000, 0).UTC()}

func read(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("..", "..", name))
	require.NoError(t, err)
	return string(content)
}

func TestThePageListsEachFileOfARelease(t *testing.T) {
	var listed []artefact
	for _, row := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\| (.*) \\|$").FindAllStringSubmatch(read(t, "docs/releasing.md"), -1) {
		listed = append(listed, artefact{row[1], row[2]})
	}
	assert.Equal(t, release{version: "VERSION"}.files(), listed)
}

func TestWhatAReleaseIsMadeOfIsWhatTheTreeHas(t *testing.T) {
	assert.Contains(t, read(t, "Makefile"), "\nPROGRAMS := "+strings.Join(programs, " ")+"\n")
	assert.Equal(t, install.DefaultRegistry, registry, "where kubectl lodestone install has clusters look for images")
	assert.Equal(t, len(programs), strings.Count(read(t, "deploy/"+releaseImages), registry+"/lodestone-"))
}

func TestImagesStartTheirProgramsAsThoseOfTheDockerfile(t *testing.T) {
	dockerfile := read(t, "Dockerfile")
	_, base, _ := strings.Cut(dockerfile, " AS base\n")
	base, _, _ = strings.Cut(base, "\nFROM ")
	user := regexp.MustCompile(`(?m)^USER (.*)$`)
	for _, program := range programs {
		_, stage, found := strings.Cut(dockerfile, " AS "+program+"\n")
		require.True(t, found, program)
		stage, _, _ = strings.Cut(stage, "\nFROM ")
		who := user.FindStringSubmatch(stage)
		if who == nil {
			who = user.FindStringSubmatch(base)
		}
		require.NotNil(t, who, program)
		how := snapshot.settings(program)
		assert.Equal(t, who[1], how.User, program)
		entrypoint, err := json.Marshal(how.Entrypoint)
		require.NoError(t, err)
		assert.Contains(t, stage, "ENTRYPOINT "+string(entrypoint), program)
	}
	assert.Contains(t, dockerfile, "FROM debian:"+suite+"-slim AS mover\n")
	assert.Subset(t, debianNames, []string{"rsync", "ca-certificates"}, "what the Dockerfile installs")
}

func TestTheWorkflowBuildsTestsAndPublishesThem(t *testing.T) {
	workflow := read(t, ".github/workflows/release.yml")
	for _, text := range []string{"make release-snapshot", "bin/release/*", snapshot.imageList(), snapshot.releaseNotes(),
		snapshot.checksums()} {
		assert.Contains(t, workflow, text)
	}
	bundle := release{version: "$GITHUB_REF_NAME"}.bundle()
	assert.Contains(t, workflow, strings.Replace(bundle, "$GITHUB_REF_NAME", "${GITHUB_REF_NAME}", 1))
	assert.Contains(t, read(t, ".github/workflows/nightly.yml"), "target: release-snapshot")
	// Only what has passed its checks is released, which are those of a push to main.
	asks, builds := strings.Index(workflow, "/actions/workflows/checks.yml/runs?head_sha=$commit&event=push&status=success"),
		strings.Index(workflow, "make release-snapshot")
	assert.Positive(t, asks)
	assert.Less(t, asks, builds)
	assert.Regexp(t, `(?m)^on:\n  push:\n    branches: \[main\]$`, read(t, ".github/workflows/checks.yml"))
}

func TestOnlyAVersionIsReleased(t *testing.T) {
	for version, good := range map[string]bool{
		"v0.1.0": true, "v1.20.3-rc.1": true, "v0.0.0-dev.0123456789ab": true, "v0.1.0-3-g0123456-dirty": true,
		"0.1.0": false, "v0.1": false, "v01.0.0": false, "dev": false, "v0.1.0+build": false, "": false,
	} {
		r := snapshot
		r.version = version
		assert.Equal(t, good, r.check() == nil, version)
	}
	r := snapshot
	r.commit = ""
	assert.ErrorContains(t, r.check(), "give --commit")
}

func TestNotesAreTheSectionOfTheChangelog(t *testing.T) {
	const changelog = `# Changelog

## [Unreleased]

- Not out: [what](docs/new.md#a).

## [0.2.0] - 2027-01-02

### Added

- A thing: [page](docs/page.md), [elsewhere](https://example.com/x).

## [0.1.0] - 2026-12-01

[Unreleased]: https://example.com/compare
`
	const verify = "\n\n[How to verify these files](" + repository + "/blob/v0.2.0/docs/releasing.md#verify-a-release)\n"
	notes, err := release{version: "v0.2.0"}.notes(changelog)
	require.NoError(t, err)
	assert.Equal(t, "### Added\n\n- A thing: [page]("+repository+"/blob/v0.2.0/docs/page.md), [elsewhere](https://example.com/x)."+verify,
		notes)
	notes, err = snapshot.notes(changelog)
	require.NoError(t, err)
	assert.Contains(t, notes, "- Not out: [what]("+repository+"/blob/0123456789ab/docs/new.md#a).")
	_, err = release{version: "v0.3.0"}.notes(changelog)
	assert.ErrorContains(t, err, "no section [0.3.0]")
	_, err = release{version: "v0.1.0"}.notes(changelog)
	assert.ErrorContains(t, err, "says nothing under [0.1.0]")
	_, err = snapshot.notes(read(t, "CHANGELOG.md"))
	assert.NoError(t, err)
}

func TestManifestsNameTheImagesOfTheRelease(t *testing.T) {
	files, err := snapshot.manifests("..")
	require.NoError(t, err)
	found := false
	for _, f := range files {
		assert.True(t, strings.HasPrefix(f.name, "lodestone-v9.8.7-rc.1/deploy/"), f.name)
		assert.NotEqual(t, ".go", path.Ext(f.name))
		if strings.HasSuffix(f.name, releaseImages) {
			found = true
			assert.Equal(t, len(programs), strings.Count(string(f.content), "v9.8.7-rc.1\n"))
			assert.NotContains(t, string(f.content), "v0.")
		}
	}
	assert.True(t, found)
	_, err = release{version: "v9.8.7"}.manifests("..")
	assert.ErrorContains(t, err, "does not name v9.8.7", "who applies the tree of a tag would get other images")
}

func TestAnArchiveDependsOnlyOnWhatIsInIt(t *testing.T) {
	files := []file{
		{name: "b/c/d", mode: 0o755, content: []byte("d")}, {name: "a", mode: 0o644, content: []byte("a")},
		{name: "b/l", mode: 0o777, link: "c/d"}, {name: "tmp", mode: 0o1777, isDir: true},
	}
	var first, second bytes.Buffer
	require.NoError(t, writeTar(&first, files, snapshot.time))
	slices.Reverse(files)
	require.NoError(t, writeTar(&second, files, snapshot.time))
	assert.Equal(t, first.Bytes(), second.Bytes())
	var names []string
	for archive := tar.NewReader(&first); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		names = append(names, header.Name)
		assert.Zero(t, header.Uid+header.Gid)
		assert.True(t, header.ModTime.Equal(snapshot.time))
	}
	assert.Equal(t, []string{"a", "b/", "b/c/", "b/c/d", "b/l", "tmp/"}, names, "a folder comes before what is in it")
}

// fake returns contents whose programs are all this file.
func fake(t *testing.T, program string) contents {
	t.Helper()
	c := contents{directory: t.TempDir(), debian: map[platform]debian{}}
	link := func(p platform, name string) {
		require.NoError(t, os.MkdirAll(filepath.Dir(c.path(p, name)), 0o755))
		require.NoError(t, os.Symlink(program, c.path(p, name)))
	}
	for _, p := range pluginPlatforms {
		link(p, "kubectl-lodestone")
	}
	for _, p := range imagePlatforms {
		link(p, "restic")
		for _, program := range programs {
			link(p, "lodestone-"+program)
		}
		c.debian[p] = debian{authorities: []byte("authorities"), packages: []debianPackage{
			{name: "rsync", version: "3.2.7-1+deb12u2", arch: p.arch}, {name: "ca-certificates", version: "2023", arch: "all"},
		}, files: []file{{name: "usr/bin/rsync", mode: 0o755, content: []byte(p.arch)}}}
	}
	return c
}

func TestTheBillNamesWhatEachProgramIsMadeOf(t *testing.T) {
	modules := []*debug.Module{
		{Path: "example.com/a", Version: "v1.0.0+incompatible"}, {Path: "example.com/b", Version: "v2.0.0"},
		{Path: "example.com/c", Version: "v1.0.0", Replace: &debug.Module{Path: "example.com/d", Version: "v3.0.0"}},
	}
	text, err := snapshot.bill(fake(t, "none"), func(file string) (string, *buildinfo.BuildInfo, error) {
		info := &buildinfo.BuildInfo{GoVersion: "go1.2.3", Main: debug.Module{Path: "example.com/restic", Version: "v4.0.0"}, Deps: modules}
		return sumOf(filepath.Base(file)), info, nil
	})
	require.NoError(t, err)
	d, locators := checkBill(t, text)
	assert.ElementsMatch(t, []string{
		"pkg:golang/stdlib@1.2.3", "pkg:golang/example.com/a@v1.0.0%2Bincompatible", "pkg:golang/example.com/b@v2.0.0",
		"pkg:golang/example.com/restic@v4.0.0",
		"pkg:golang/example.com/d@v3.0.0", "pkg:deb/debian/ca-certificates@2023?arch=all&distro=bookworm",
		"pkg:deb/debian/rsync@3.2.7-1%2Bdeb12u2?arch=amd64&distro=bookworm", "pkg:deb/debian/rsync@3.2.7-1%2Bdeb12u2?arch=arm64&distro=bookworm",
	}, locators)
	restic := slices.IndexFunc(d.Packages, func(p spdxPackage) bool { return p.ID == "SPDXRef-restic-linux-arm64" })
	require.GreaterOrEqual(t, restic, 0)
	assert.Equal(t, "v4.0.0", d.Packages[restic].Version)
	assert.Equal(t, []spdxChecksum{{"SHA256", sumOf("restic")}}, d.Packages[restic].Checksums)
	assert.Contains(t, d.Relationships, spdxRelationship{"SPDXRef-image-mover-linux-arm64", "CONTAINS", "SPDXRef-restic-linux-arm64"})
}

func sumOf(text string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(text))) }

// checkBill checks that a document is one of SPDX 2.3, as SPDX's own library reads it, and whole, and returns the package URLs in it.
func checkBill(t *testing.T, text string) (d spdxDocument, locators []string) {
	t.Helper()
	read, err := spdxjson.Read(strings.NewReader(text))
	require.NoError(t, err)
	require.NoError(t, spdxlib.ValidateDocument(read))
	assert.Equal(t, spdx.Version, read.SPDXVersion)
	var again strings.Builder
	require.NoError(t, spdxjson.Write(read, &again))
	assert.Equal(t, fields(t, text), fields(t, again.String()), "what that library does not know is lost here")
	for _, p := range read.Packages {
		for _, sum := range p.PackageChecksums {
			assert.Equal(t, common.SHA256, sum.Algorithm)
			assert.Regexp(t, `^[0-9a-f]{64}$`, sum.Value, p.PackageName)
		}
		for _, ref := range p.PackageExternalReferences {
			assert.Equal(t, common.CategoryPackageManager, ref.Category)
			assert.Equal(t, common.TypePackageManagerPURL, ref.RefType)
		}
	}
	for _, r := range read.Relationships {
		assert.Contains(t, []string{common.TypeRelationshipDescribe, common.TypeRelationshipContains, common.TypeRelationshipDependsOn},
			r.Relationship)
	}
	_, err = time.Parse("2006-01-02T15:04:05Z", read.CreationInfo.Created)
	assert.NoError(t, err, "SPDX has times of UTC, in whole seconds")
	require.NoError(t, json.Unmarshal([]byte(text), &d))
	ids := map[string]bool{"SPDXRef-DOCUMENT": true}
	for _, p := range d.Packages {
		assert.False(t, ids[p.ID], "%s is there twice", p.ID)
		assert.Regexp(t, `^SPDXRef-[A-Za-z0-9.-]+$`, p.ID)
		assert.NotEmpty(t, p.Version, p.ID)
		ids[p.ID] = true
		for _, ref := range p.Refs {
			locators = append(locators, ref.Locator)
		}
	}
	described, related := 0, map[string]bool{}
	for _, r := range d.Relationships {
		assert.True(t, ids[r.From] && ids[r.To], "%v", r)
		related[r.To] = true
		if r.Kind == "DESCRIBES" {
			described++
		}
	}
	assert.Equal(t, len(pluginPlatforms)+len(programs)*len(imagePlatforms), described)
	for _, p := range d.Packages {
		assert.True(t, related[p.ID], "%s is part of nothing", p.ID)
	}
	return d, locators
}

// fields returns all fields of a document, with their values.
func fields(t *testing.T, text string) (all map[string]any) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(text), &all))
	return all
}

func TestTheBundleHasEachImageForEachPlatform(t *testing.T) {
	program, to := filepath.Join(t.TempDir(), "program"), filepath.Join(t.TempDir(), "images.tar")
	require.NoError(t, os.WriteFile(program, []byte("program"), 0o600))
	list, err := snapshot.writeImages(fake(t, program), t.TempDir(), to)
	require.NoError(t, err)
	b := readBundle(t, to)
	assert.Equal(t, list, b.list)
	for _, program := range programs {
		for _, p := range imagePlatforms {
			root := b.unpack(t, snapshot.image(program), p)
			rsync, err := os.ReadFile(filepath.Join(root, "usr", "bin", "rsync"))
			assert.Equal(t, program == "mover", err == nil)
			assert.Equal(t, program == "mover", string(rsync) == p.arch)
			info, err := os.Stat(filepath.Join(root, "lodestone-"+program))
			require.NoError(t, err)
			assert.Equal(t, os.FileMode(0o755), info.Mode())
		}
	}
}

func TestKrewFindsTheArchives(t *testing.T) {
	sums := map[platform]string{}
	for _, p := range pluginPlatforms {
		sums[p] = strings.Repeat("a", 64-len(p.String())) + p.String()
	}
	checkKrew(t, snapshot, snapshot.krewManifest(sums), func(p platform) string { return sums[p] })
}

// checkKrew checks a manifest of krew against the archives' checksums.
func checkKrew(t *testing.T, r release, text string, sum func(platform) string) {
	t.Helper()
	var plugin struct {
		APIVersion string
		Kind       string
		Metadata   struct{ Name string }
		Spec       struct {
			Version, Homepage, ShortDescription, Description string
			Platforms                                        []struct {
				Selector struct{ MatchLabels map[string]string }
				URI      string
				Sha256   string
				Bin      string
			}
		}
	}
	require.NoError(t, yaml.UnmarshalStrict([]byte(text), &plugin))
	assert.Equal(t, "krew.googlecontainertools.github.com/v1alpha2 Plugin lodestone",
		plugin.APIVersion+" "+plugin.Kind+" "+plugin.Metadata.Name)
	assert.Equal(t, r.version, plugin.Spec.Version)
	assert.LessOrEqual(t, len(plugin.Spec.ShortDescription), 50, "krew's index takes no more")
	require.Len(t, plugin.Spec.Platforms, len(pluginPlatforms))
	for _, of := range plugin.Spec.Platforms {
		p := platform{of.Selector.MatchLabels["os"], of.Selector.MatchLabels["arch"]}
		require.Contains(t, pluginPlatforms, p)
		assert.Equal(t, repository+"/releases/download/"+r.version+"/"+r.plugin(p), of.URI)
		assert.Equal(t, sum(p), of.Sha256)
		assert.Equal(t, p.executable("kubectl-lodestone"), of.Bin)
	}
}
