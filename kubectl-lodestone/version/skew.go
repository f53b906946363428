package version

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"
)

// Warnings says which programs are of versions that are not to run together. Home's programs are to be of one version, and so are
// those of a remote cluster; plugin, home and the remote agent may be one minor version apart, which is what an upgrade passes
// through. A tag that is no version, as dev, is only compared with those beside it. It is pure.
func Warnings(all Versions) (warnings []string) {
	home, remote := ours(all.Home), ours(all.Remote)
	for _, place := range []struct {
		name string
		run  []string
	}{{"home", home}, {"the remote cluster", remote}} {
		if len(place.run) > 1 {
			warnings = append(warnings, fmt.Sprintf("the programs of %s run %s: finish the upgrade with kubectl lodestone install, or apply your "+
				"overlay again", place.name, strings.Join(place.run, " and ")))
		}
	}
	for _, of := range home {
		if apart(all.Plugin.Version, of) {
			warnings = append(warnings, fmt.Sprintf("this plugin %s and home's programs %s are more than one minor version apart: take the plugin "+
				"of their version", all.Plugin.Version, of))
		}
		for _, agent := range remote {
			if apart(agent, of) {
				warnings = append(warnings, fmt.Sprintf("the remote agent %s and home's programs %s are more than one minor version apart: "+
					"upgrade the older one, one minor version at a time", agent, of))
			}
		}
	}
	return warnings
}

// ours returns the versions of Lodestone's own programs, each once.
func ours(programs []Program) (found []string) {
	for _, program := range programs {
		if strings.HasPrefix(path.Base(program.Image), "lodestone-") && !slices.Contains(found, program.Version) {
			found = append(found, program.Version)
		}
	}
	return found
}

// apart says whether two versions are more than one minor version apart; false if one of them is none, or of a tree that was
// never released.
func apart(a, b string) bool {
	first, errA := version.ParseSemantic(a)
	second, errB := version.ParseSemantic(b)
	if errA != nil || errB != nil || isDevelopment(first) || isDevelopment(second) {
		return false
	}
	if first.Major() != second.Major() {
		return true
	}
	return max(first.Minor(), second.Minor())-min(first.Minor(), second.Minor()) > 1
}

func isDevelopment(v *version.Version) bool { return v.Major() == 0 && v.Minor() == 0 }
