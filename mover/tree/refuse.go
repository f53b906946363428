package tree

import (
	"cmp"
	"fmt"
	"slices"
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

// Refusals says in sentences why a volume cannot be moved to a target: what no copy
// keeps, what the target lacks, too little space. Empty means that nothing forbids
// it. What is at the target already is held to be reused: its manifest's summary is
// given if there is one.
func Refusals(source Summary, target Abilities, there *Summary) (sentences []string) {
	for _, f := range source.Findings {
		sentences = append(sentences, f.String())
	}
	for _, need := range source.Needs {
		reason, lacking := target.Lacks[need.Ability]
		if !lacking {
			continue
		}
		sentences = append(sentences, fmt.Sprintf("%s: the target cannot keep %s (%s); %d entries need it",
			need.Path, cmp.Or(abilityWords[need.Ability], string(need.Ability)), reason, need.Count))
	}
	return slices.Concat(sentences, tooSmall(source, target, there))
}

// tooSmall compares what the volume takes with what the target has.
func tooSmall(source Summary, target Abilities, there *Summary) (sentences []string) {
	has, inodes := target.Bytes, target.Inodes
	if there != nil {
		has += there.Allocated
		inodes += there.Inodes
	}
	// Each inode may waste up to a block at its end, and the target may use larger
	// blocks than the source; directories and attributes take blocks of their own.
	needs := source.Allocated + source.Inodes*target.BlockSize/2
	if needs > has {
		sentences = append(sentences, fmt.Sprintf("the target is too small: the volume takes about %s, the target has %s free",
			sizeInWords(needs), sizeInWords(has)))
	}
	if target.Inodes > 0 && source.Inodes > inodes {
		sentences = append(sentences, fmt.Sprintf("the target has too few inodes: the volume takes %d, the target has %d free",
			source.Inodes, inodes))
	}
	return sentences
}

func sizeInWords(n uint64) string {
	units := []string{"bytes", "KiB", "MiB", "GiB", "TiB"}
	value, unit := float64(n), 0
	for value >= 1024 && unit < len(units)-1 {
		value /= 1024
		unit++
	}
	if unit == 0 {
		return fmt.Sprintf("%d bytes", n)
	}
	return fmt.Sprintf("%.1f %s", value, units[unit])
}
