package cases

import (
	"errors"
	"path/filepath"
)

// Together is one case of all that only fill the source, and change it, and must be kept:
// each in a folder of its own. It is for engines that take long to start.
func Together(scale Scale) Case {
	var all []Case
	for _, c := range All(scale) {
		alone := c.Target != nil || c.During != nil || c.Replace != nil || c.Spoil != nil || len(c.Without) > 0 || c.TargetBytes > 0 || c.Disk || c.SpoilStream > 0 || c.Holds != nil
		if c.Must == Kept && !c.Root && !alone && c.Source != nil {
			all = append(all, c)
		}
	}
	each := func(v *Volume, what func(Case) func(*Volume)) {
		for _, c := range all {
			do := what(c)
			if do == nil {
				continue
			}
			own := &Volume{Dir: filepath.Join(v.Dir, c.Number)}
			v.mkdir(c.Number, 0o755)
			do(own)
			v.Err = errors.Join(v.Err, own.Err)
		}
	}
	return Case{
		Number: "all", Name: "all that are in the source", Must: Kept,
		Source:  func(v *Volume) { each(v, func(c Case) func(*Volume) { return c.Source }) },
		Between: func(v *Volume) { each(v, func(c Case) func(*Volume) { return c.Between }) },
	}
}
