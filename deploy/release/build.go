package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// contents is what a release is made of: programs that were built, as files of a directory for each platform, and what is taken of Debian.
type contents struct {
	directory string
	debian    map[platform]debian
}

func (c contents) path(p platform, program string) string {
	return filepath.Join(c.directory, p.os+"_"+p.arch, p.executable(program))
}

// build builds the plugin and the programs of clusters for all platforms, and fetches the packages of Debian.
func (r release) build(ctx context.Context, work string) (contents, error) {
	c := contents{directory: filepath.Join(work, "programs"), debian: map[platform]debian{}}
	for _, p := range imagePlatforms {
		packages, err := fetchDebian(ctx, filepath.Join(work, "debian-"+p.arch), p.arch)
		if err != nil {
			return contents{}, err
		}
		if c.debian[p], err = unpack(ctx, packages); err != nil {
			return contents{}, err
		}
	}
	dockerfile, err := os.ReadFile("Dockerfile")
	if err != nil {
		return contents{}, err
	}
	toolchain, err := toolchain(string(dockerfile))
	if err != nil {
		return contents{}, err
	}
	const at = "k8s.io/component-base/version"
	flags := fmt.Sprintf("-s -w -X %[1]s.gitVersion=%[2]s -X %[1]s.gitCommit=%[3]s", at, r.version, r.commit)
	for _, p := range pluginPlatforms {
		if err := compile(ctx, p, toolchain, ".", c.path(p, "kubectl-lodestone"), "-ldflags", flags, "./kubectl-lodestone"); err != nil {
			return contents{}, err
		}
	}
	for _, p := range imagePlatforms {
		for _, program := range programs {
			from := "./" + strings.ReplaceAll(program, "-", "")
			if err := compile(ctx, p, toolchain, ".", c.path(p, "lodestone-"+program), "-ldflags", flags, from); err != nil {
				return contents{}, err
			}
		}
		// Without gRPC for Google Cloud, as in restic's own builds.
		err := compile(ctx, p, toolchain, "mover/content/restic/program", c.path(p, "restic"),
			"-tags", "disable_grpc_modules", "-ldflags", "-s -w", "tool")
		if err != nil {
			return contents{}, err
		}
	}
	return c, nil
}

// toolchain is the version of Go that a Dockerfile names: whoever builds a release, takes this one.
func toolchain(dockerfile string) (string, error) {
	version := regexp.MustCompile(`golang:([0-9.]+)-`).FindStringSubmatch(dockerfile)
	if version == nil {
		return "", errors.New("the Dockerfile names no image golang:<version>, so it is not known which Go builds releases")
	}
	return "go" + version[1], nil
}

// compile builds a static program of a module, which hack/go.sh says progress of.
func compile(ctx context.Context, p platform, toolchain, module, to string, args ...string) error {
	to, err := filepath.Abs(to)
	if err != nil {
		return err
	}
	script, err := filepath.Abs("hack/go.sh")
	if err != nil {
		return err
	}
	name := fmt.Sprintf("%s for %s", filepath.Base(to), p)
	command := exec.CommandContext(ctx, script, append([]string{name, "build", "-o", to}, args...)...)
	command.Dir, command.Stderr = module, os.Stderr
	command.Env = append(os.Environ(), "GOOS="+p.os, "GOARCH="+p.arch, "CGO_ENABLED=0", "GOWORK=off", "GOTOOLCHAIN="+toolchain,
		"GOFLAGS=-trimpath -buildvcs=false")
	if err := command.Run(); err != nil {
		return fmt.Errorf("build %s: %w: see above", name, err)
	}
	fmt.Printf("built %s\n", name)
	return nil
}

// writeChart writes the archive of the Helm chart.
func (r release) writeChart(ctx context.Context, work, to string) error {
	directory := filepath.Join(work, "chart")
	command := exec.CommandContext(ctx, "go", "run", "./deploy/chart", "--to", directory, "--version", r.version)
	command.Stdout, command.Stderr = os.Stdout, os.Stderr
	if err := command.Run(); err != nil {
		return fmt.Errorf("write the chart: %w: see above", err)
	}
	var files []file
	err := filepath.WalkDir(directory, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		inside, err := filepath.Rel(directory, name)
		files = append(files, file{name: filepath.ToSlash(inside), mode: 0o644, from: name})
		return err
	})
	if err != nil {
		return err
	}
	_, err = r.writeArchive(to, files)
	return err
}
