package restic

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
)

// verb is what restic is run for.
type verb string

const (
	look   verb = "look"
	begin  verb = "begin"
	save   verb = "save"
	fetch  verb = "fetch"
	forget verb = "forget"
	prune  verb = "prune"
	unlock verb = "unlock"
)

// call is one run of restic.
type call struct {
	verb             verb
	volume, snapshot string
	// part is the part of a repository in a claim.
	part  string
	input io.Reader
	// limit is in bytes a second; 0: none.
	limit int64
	told  *Told
}

// named is what the name of a snapshot looks like.
var named = regexp.MustCompile(`^[0-9a-f]{64}$`)

// common are arguments of every run. Small packs need little memory, and little room in
// the temporary directory.
var common = []string{"--no-cache", "--json", "--pack-size=8", "--stuck-request-timeout=" + stuckTimeout.String()}

// words are the arguments of each verb. Whoever fetches takes no lock: nobody removes
// anything until it is done. Attributes are left to rsync, which knows which are the
// machine's own.
var words = map[verb][]string{
	look:   {"cat", "config", "--no-lock"},
	begin:  {"init", "--repository-version=2"},
	save:   {"backup", "--files-from-raw=-", "--force", "--no-scan", "--host=move", "--read-concurrency=2"},
	fetch:  {"restore", "--no-lock", "--sparse", "--overwrite=always", "--exclude-xattr=*"},
	forget: {"forget", "--unsafe-allow-remove-all", "--host=move"},
	prune:  {"prune", "--max-unused=0"},
	unlock: {"unlock", "--remove-all"},
}

// arguments are those of one run. Nothing of them comes from the other end but the name of
// a snapshot, which was checked.
func (s *Store) arguments(c call) []string {
	args := slices.Concat(words[c.verb], common)
	if s.Authority != "" {
		args = append(args, "--cacert="+s.Authority)
	}
	if c.limit > 0 {
		// Restic counts in KiB, and takes 0 for no limit.
		rate := strconv.FormatInt(max(1, c.limit>>10), 10)
		args = append(args, "--limit-upload="+rate, "--limit-download="+rate)
	}
	if c.verb == fetch {
		args = append(args, "--target="+c.volume, "--", c.snapshot)
	}
	return args
}

// place is what restic takes for the repository.
func (s *Store) place() string {
	if s.inClaim() {
		return "local:" + mounted
	}
	return s.URL
}

// memoryAtMost is what restic aims to stay below, in bytes.
const memoryAtMost = 256 << 20

// environment is restic's: the credentials of the store, and nothing of the mover's own.
func (s *Store) environment() []string {
	env := []string{
		"PATH=/usr/bin:/bin", "LC_ALL=C.UTF-8", "GOMAXPROCS=2", fmt.Sprintf("GOMEMLIMIT=%d", memoryAtMost),
		"TMPDIR=" + s.Temporary, "RESTIC_PROGRESS_FPS=2",
		"RESTIC_REPOSITORY=" + s.place(), "RESTIC_PASSWORD=" + s.Password,
	}
	for name, value := range s.Credentials {
		env = append(env, name+"="+value)
	}
	slices.Sort(env)
	return env
}
