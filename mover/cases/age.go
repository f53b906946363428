package cases

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// age gives everything that was made within the last hour an earlier time, so that
// only cases about times within one second depend on them.
func (v *Volume) age(by time.Duration) {
	now := time.Now()
	var young []string
	v.do("look at all times", func() error {
		return filepath.WalkDir(v.Dir, func(path string, _ fs.DirEntry, err error) error {
			var info fs.FileInfo
			if err == nil {
				info, err = os.Lstat(path)
			}
			if errors.Is(err, unix.ENAMETOOLONG) {
				return nil
			}
			if err != nil {
				return err
			}
			if since := now.Sub(info.ModTime()); since >= 0 && since < time.Hour {
				name, err := filepath.Rel(v.Dir, path)
				if err != nil {
					return err
				}
				young = append(young, name)
			}
			return nil
		})
	})
	for _, name := range young {
		v.mtime(name, now.Add(-by))
	}
}
