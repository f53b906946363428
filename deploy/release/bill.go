package main

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"os"
	"path"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
)

// The part of SPDX 2.3 that is used here.
type (
	spdxDocument struct {
		Version       string             `json:"spdxVersion"`
		License       string             `json:"dataLicense"`
		ID            string             `json:"SPDXID"`
		Name          string             `json:"name"`
		Namespace     string             `json:"documentNamespace"`
		Creation      spdxCreation       `json:"creationInfo"`
		Packages      []spdxPackage      `json:"packages"`
		Relationships []spdxRelationship `json:"relationships"`
	}
	spdxCreation struct {
		Created  string   `json:"created"`
		Creators []string `json:"creators"`
	}
	spdxPackage struct {
		ID        string         `json:"SPDXID"`
		Name      string         `json:"name"`
		Version   string         `json:"versionInfo"`
		Location  string         `json:"downloadLocation"`
		Analyzed  bool           `json:"filesAnalyzed"`
		Declared  string         `json:"licenseDeclared"`
		Concluded string         `json:"licenseConcluded"`
		Copyright string         `json:"copyrightText"`
		Checksums []spdxChecksum `json:"checksums,omitempty"`
		Refs      []spdxRef      `json:"externalRefs,omitempty"`
	}
	spdxChecksum struct {
		Algorithm string `json:"algorithm"`
		Value     string `json:"checksumValue"`
	}
	spdxRef struct {
		Category string `json:"referenceCategory"`
		Type     string `json:"referenceType"`
		Locator  string `json:"referenceLocator"`
	}
	spdxRelationship struct {
		From string `json:"spdxElementId"`
		Kind string `json:"relationshipType"`
		To   string `json:"relatedSpdxElement"`
	}
)

const noAssertion = "NOASSERTION"

var notInID = regexp.MustCompile(`[^A-Za-z0-9.-]+`)

func spdxID(parts ...string) string {
	return "SPDXRef-" + notInID.ReplaceAllString(strings.Join(parts, "-"), "-")
}

// purl adds a package of others, once, by its package URL, and returns it.
func (d *spdxDocument) purl(name, version, locator string) spdxPackage {
	locator = strings.ReplaceAll(locator, "+", "%2B")
	p := spdxPackage{
		ID: spdxID(locator), Name: name, Version: version, Location: noAssertion, Declared: noAssertion, Concluded: noAssertion,
		Copyright: noAssertion, Refs: []spdxRef{{"PACKAGE-MANAGER", "purl", locator}},
	}
	if !slices.ContainsFunc(d.Packages, func(other spdxPackage) bool { return other.ID == p.ID }) {
		d.Packages = append(d.Packages, p)
	}
	return p
}

func (d *spdxDocument) relate(from, kind, to string) {
	d.Relationships = append(d.Relationships, spdxRelationship{from, kind, to})
}

// inspect returns the SHA-256 of a program, and what Go has written into it. Tests give another.
type inspect func(file string) (sum string, info *buildinfo.BuildInfo, err error)

func inspectFile(file string) (string, *buildinfo.BuildInfo, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return "", nil, err
	}
	info, err := buildinfo.Read(bytes.NewReader(content))
	if err != nil {
		return "", nil, fmt.Errorf("read what %s is made of: %w", file, err)
	}
	return fmt.Sprintf("%x", sha256.Sum256(content)), info, nil
}

// program adds a built program with the modules that Go has written into it, and returns its id. Without a version, it is a module
// of others.
func (d *spdxDocument) program(of inspect, p platform, file, version, license string) (string, error) {
	sum, info, err := of(file)
	if err != nil {
		return "", err
	}
	name := strings.TrimSuffix(path.Base(file), ".exe")
	id := spdxID(name, p.os, p.arch)
	modules := info.Deps
	if version == "" {
		version, modules = info.Main.Version, append([]*debug.Module{&info.Main}, modules...)
	}
	d.Packages = append(d.Packages, spdxPackage{
		ID: id, Name: fmt.Sprintf("%s (%s)", name, p), Version: version, Location: noAssertion, Declared: license, Concluded: noAssertion,
		Copyright: noAssertion, Checksums: []spdxChecksum{{"SHA256", sum}},
	})
	d.relate(id, "DEPENDS_ON", d.purl("stdlib", info.GoVersion, "pkg:golang/stdlib@"+strings.TrimPrefix(info.GoVersion, "go")).ID)
	for _, module := range modules {
		if module.Replace != nil {
			module = module.Replace
		}
		d.relate(id, "DEPENDS_ON", d.purl(module.Path, module.Version, "pkg:golang/"+module.Path+"@"+module.Version).ID)
	}
	return id, nil
}

// bill returns the bill of materials of a release: the plugin, the images, and what each is made of.
func (r release) bill(c contents, of inspect) (string, error) {
	d := &spdxDocument{
		Version: "SPDX-2.3", License: "CC0-1.0", ID: "SPDXRef-DOCUMENT", Name: "lodestone " + r.version,
		Namespace: r.download(r.sbom()) + "/" + r.commit,
		Creation:  spdxCreation{r.time.Format("2006-01-02T15:04:05Z"), []string{"Organization: Lodestone", "Tool: lodestone-deploy-release"}},
	}
	for _, p := range pluginPlatforms {
		id, err := d.program(of, p, c.path(p, "kubectl-lodestone"), r.version, "Apache-2.0")
		if err != nil {
			return "", err
		}
		d.relate(d.ID, "DESCRIBES", id)
	}
	for _, p := range imagePlatforms {
		for _, program := range programs {
			image := spdxID("image", program, p.os, p.arch)
			d.Packages = append(d.Packages, spdxPackage{
				ID: image, Name: fmt.Sprintf("%s (%s)", r.image(program), p), Version: r.version, Location: noAssertion, Declared: noAssertion,
				Concluded: noAssertion, Copyright: noAssertion,
			})
			d.relate(d.ID, "DESCRIBES", image)
			id, err := d.program(of, p, c.path(p, "lodestone-"+program), r.version, "Apache-2.0")
			if err != nil {
				return "", err
			}
			d.relate(image, "CONTAINS", id)
			for _, from := range c.debian[p].packages {
				if program == "mover" || from.name == "ca-certificates" {
					locator := fmt.Sprintf("pkg:deb/debian/%s@%s?arch=%s&distro=%s", from.name, from.version, from.arch, suite)
					d.relate(image, "CONTAINS", d.purl(from.name, from.version, locator).ID)
				}
			}
			if program == "mover" {
				id, err := d.program(of, p, c.path(p, "restic"), "", "BSD-2-Clause")
				if err != nil {
					return "", err
				}
				d.relate(image, "CONTAINS", id)
			}
		}
	}
	slices.SortStableFunc(d.Packages, func(a, b spdxPackage) int { return cmp.Compare(a.ID, b.ID) })
	content, err := json.MarshalIndent(d, "", " ")
	return string(content) + "\n", err
}
