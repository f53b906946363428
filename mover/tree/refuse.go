package tree

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/lodestone-storage/lodestone/mover/scratch"
)

// abilityWords say what the target lacks.
var abilityWords = map[Ability]string{
	HardLinks:      "hard links",
	Symlinks:       "symbolic links",
	Fifos:          "named pipes",
	Sockets:        "sockets",
	Devices:        "devices",
	Owners:         "owners",
	SpecialBits:    "setuid, setgid or sticky bits",
	UserXattrs:     "extended attributes user.*",
	TrustedXattrs:  "extended attributes trusted.*",
	Capabilities:   "file capabilities",
	ACLs:           "POSIX ACLs",
	NonUTF8Names:   "names that are not UTF-8",
	UnusualNames:   "names with unusual characters",
	LongNames:      "long names",
	CaseSensitive:  "upper and lower case in names",
	Nanoseconds:    "times with nanoseconds",
	TimeBefore1970: "times before 1970",
	TimeAfter2038:  "times after 2038",
}

// Refusal is why a volume cannot be moved. Path is the first that it is about, as a
// message shows it; empty if it is about the whole volume.
type Refusal struct{ Path, Reason string }

// Refusals says why a volume cannot be moved to a target: what no copy keeps, what the
// target lacks, too little space. None means that nothing forbids it. What is at the
// target already is held to be reused: its summary is given if there is one.
func Refusals(source Summary, target Abilities, there *Summary) (refusals []Refusal) {
	for _, f := range source.Findings {
		refusals = append(refusals, Refusal{f.Path, f.words()})
	}
	for _, need := range source.Needs {
		reason, lacking := target.Lacks[need.Ability]
		if !lacking {
			continue
		}
		refusals = append(refusals, Refusal{need.Path, fmt.Sprintf("the target cannot keep %s (%s); entries that need it: %d",
			cmp.Or(abilityWords[need.Ability], string(need.Ability)), reason, need.Count)})
	}
	return slices.Concat(refusals, tooSmall(source, target, there))
}

// tooSmall compares what the volume takes with what the target has. A volume that takes
// more there than here, as with larger blocks, is not foreseen: a pass then fails, and
// passes run before anything stops.
func tooSmall(source Summary, target Abilities, there *Summary) (refusals []Refusal) {
	has, inodes := target.Bytes, target.Inodes
	if there != nil {
		has += there.Allocated
		inodes += there.Inodes
	}
	needs, filled := source.Allocated, ""
	if _, lacking := target.Lacks[Holes]; lacking && source.Bytes > needs {
		needs, filled = source.Bytes, " and fills holes"
	}
	if needs > has {
		refusals = append(refusals, Refusal{Reason: fmt.Sprintf("the target is too small: the volume takes about %s, the target has %s free%s",
			scratch.InWords(needs), scratch.InWords(has), filled)})
	}
	if target.Inodes > 0 && source.Inodes > inodes {
		refusals = append(refusals, Refusal{Reason: fmt.Sprintf("the target has too few inodes: the volume takes %d, the target has %d free",
			source.Inodes, inodes)})
	}
	return refusals
}
