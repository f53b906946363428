package main

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// suite is the release of Debian that the mover's image is made of, the same as in the Dockerfile.
const suite = "bookworm"

// debianNames are the packages of the mover's image: rsync, the libraries that it loads, and authorities, which all images have.
var debianNames = []string{
	"rsync", "libacl1", "libc6", "liblz4-1", "libpopt0", "libssl3", "libxxhash0", "libzstd1", "zlib1g", "ca-certificates",
}

// taken are the files that are taken of them: rsync, libraries, licenses. Nothing of them that is run when they are installed is needed.
var taken = regexp.MustCompile(`^(usr/bin/rsync|(usr/)?lib(/[a-z0-9_]+-linux-gnu)?/[^/]+\.so(\.[^/]*)?|lib64/[^/]+|` +
	`usr/share/doc/[^/]+/copyright)$`)

// trusted are the authorities that Debian trusts.
var trusted = regexp.MustCompile(`^usr/share/ca-certificates/mozilla/[^/]+\.crt$`)

// debian is what images of an architecture have of Debian. The authorities are in one file.
type debian struct {
	packages    []debianPackage
	files       []file
	authorities []byte
}

// debianPackage is a package, and where its file is.
type debianPackage struct{ name, version, arch, path string }

// debianSources is where apt takes packages from: the mirror that DEBIAN_MIRROR names, with its neighbour for security, else what a
// machine with this Debian uses itself.
func debianSources(ctx context.Context) (string, error) {
	const keys = "[signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]"
	if mirror := strings.TrimSuffix(os.Getenv("DEBIAN_MIRROR"), "/"); mirror != "" {
		return fmt.Sprintf("deb %[1]s %[2]s %[3]s main\ndeb %[1]s %[2]s %[3]s-updates main\ndeb %[1]s %[2]s-security %[3]s-security main\n",
			keys, mirror, suite), nil
	}
	output, err := exec.CommandContext(ctx, "apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE) main").Output()
	if err != nil {
		return "", fmt.Errorf("ask apt-get for the sources of this machine: %w", err)
	}
	lines := map[string]bool{}
	for line := range strings.Lines(string(output)) {
		if fields := strings.Fields(line); len(fields) == 3 && strings.HasPrefix(fields[1], suite) {
			lines["deb "+keys+" "+strings.TrimSpace(line)+"\n"] = true
		}
	}
	if len(lines) == 0 {
		return "", fmt.Errorf("this machine has no packages of Debian %s: name a mirror in DEBIAN_MIRROR, whose path ends in /debian", suite)
	}
	return strings.Join(slices.Sorted(maps.Keys(lines)), ""), nil
}

// fetchDebian has apt fetch the packages for an architecture into a directory. apt checks who signed them; it uses and changes nothing
// of this machine but its proxy.
func fetchDebian(ctx context.Context, directory, arch string) ([]debianPackage, error) {
	directory, err := filepath.Abs(directory)
	if err != nil {
		return nil, err
	}
	for _, name := range []string{"state/lists/partial", "cache/archives/partial", "packages"} {
		if err := os.MkdirAll(filepath.Join(directory, name), 0o755); err != nil {
			return nil, err
		}
	}
	sources, err := debianSources(ctx)
	if err != nil {
		return nil, err
	}
	for name, text := range map[string]string{
		"status":       "",
		"sources.list": sources,
		"apt.conf": fmt.Sprintf(`APT::Architecture %q; APT::Architectures { %[1]q; };
APT::Sandbox::User "root"; Acquire::Languages "none"; Acquire::Retries "3";
Dir::State %[2]q; Dir::State::status %[3]q; Dir::Cache %[4]q; Dir::Etc::sourcelist %[5]q; Dir::Etc::sourceparts "/dev/null";
Dir::Etc::preferences "/dev/null"; Dir::Etc::preferencesparts "/dev/null";
`, arch, directory+"/state", directory+"/status", directory+"/cache", directory+"/sources.list"),
	} {
		if err := os.WriteFile(filepath.Join(directory, name), []byte(text), 0o600); err != nil {
			return nil, err
		}
	}
	for _, args := range [][]string{{"update"}, append([]string{"download"}, debianNames...)} {
		command := exec.CommandContext(ctx, "apt-get", append([]string{"-qq"}, args...)...)
		command.Dir = filepath.Join(directory, "packages")
		command.Env = append(os.Environ(), "APT_CONFIG="+directory+"/apt.conf", "LC_ALL=C")
		if output, err := command.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("apt-get %s for %s (it takes apt, debian-archive-keyring and the network): %w: %s", args[0], arch, err, output)
		}
	}
	paths, err := filepath.Glob(filepath.Join(directory, "packages", "*.deb"))
	if err != nil {
		return nil, err
	}
	if len(paths) != len(debianNames) {
		return nil, fmt.Errorf("apt-get fetched %d of %d packages for %s: %v", len(paths), len(debianNames), arch, paths)
	}
	var packages []debianPackage
	for _, name := range paths {
		fields, err := exec.CommandContext(ctx, "dpkg-deb", "--show", "--showformat", "${Package} ${Version} ${Architecture}", name).Output()
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", filepath.Base(name), err)
		}
		var p debianPackage
		if _, err := fmt.Sscan(string(fields), &p.name, &p.version, &p.arch); err != nil {
			return nil, fmt.Errorf("read %s: %w", filepath.Base(name), err)
		}
		p.path = name
		packages = append(packages, p)
	}
	return packages, nil
}

// unpack takes from packages what images have of them.
func unpack(ctx context.Context, packages []debianPackage) (debian, error) {
	all := debian{packages: packages}
	var certificates []file
	for _, p := range packages {
		content, err := exec.CommandContext(ctx, "dpkg-deb", "--fsys-tarfile", p.path).Output()
		if err != nil {
			return debian{}, fmt.Errorf("unpack %s: %w", p.name, err)
		}
		for archive := tar.NewReader(bytes.NewReader(content)); ; {
			header, err := archive.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return debian{}, fmt.Errorf("unpack %s: %w", p.name, err)
			}
			name := path.Clean(header.Name)
			if header.Typeflag != tar.TypeReg && header.Typeflag != tar.TypeSymlink {
				continue
			}
			f := file{name: name, mode: header.Mode & 0o777, link: header.Linkname}
			if f.content, err = io.ReadAll(archive); err != nil {
				return debian{}, fmt.Errorf("unpack %s: %w", p.name, err)
			}
			switch {
			case trusted.MatchString(name):
				certificates = append(certificates, f)
			case taken.MatchString(name):
				all.files = append(all.files, f)
			}
		}
	}
	slices.SortFunc(certificates, func(a, b file) int { return strings.Compare(a.name, b.name) })
	for _, c := range certificates {
		all.authorities = append(all.authorities, strings.TrimSpace(string(c.content))+"\n"...)
	}
	if len(certificates) < 50 {
		return debian{}, fmt.Errorf("ca-certificates has %d authorities, which are too few: have a look at where it keeps them",
			len(certificates))
	}
	return all, nil
}
