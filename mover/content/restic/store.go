package restic

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/lodestone-storage/lodestone/mover/sandbox"
	"github.com/lodestone-storage/lodestone/pkg/moverapi"
)

// Store is the repository of one claim's movers. Its methods are safe for concurrent use; only one
// of them runs at a time.
type Store struct {
	moverapi.Ticket
	// Self is the path of the mover's own program, Authority the file with the store's certificate
	// authority, empty for the system's, Temporary a directory outside of the volume.
	Self, Authority, Temporary string
	// Root is the mount point of the claim, if the repository is in one.
	Root string

	mutex sync.Mutex
	// ready says that the repository exists, empty that nothing is in it.
	ready, empty bool
	// part is the part of a repository in a claim that this sender has created last. claimMutex is
	// locked while the claim's files are used.
	part       string
	claimMutex sync.Mutex
	// maxIdle is how long restic may do nothing; 0: defaultMaxIdle.
	maxIdle time.Duration
}

// inClaim reports whether the repository is in a claim.
func (s *Store) inClaim() bool { return s.Claim != "" }

// Installed returns an error unless restic is installed.
func Installed() error {
	if _, err := os.Stat(program()); err != nil {
		return fmt.Errorf("restic is not installed beside the mover: %w", err)
	}
	return nil
}

const (
	// dialTimeout limits the time to connect to the store, askTimeout the time to answer a request,
	// before the store counts as unreachable. Restic itself would try for a quarter of an hour.
	dialTimeout = 5 * time.Second
	askTimeout  = time.Minute
)

// Open prepares the repository; with create it creates the repository if there is none yet. An
// *Error says why the store cannot be used.
func (s *Store) Open(ctx context.Context, create bool) error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.open(ctx, create)
}

// Part returns the part of the repository that Open has created, for Check; empty in an object
// store.
func (s *Store) Part() string {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.part
}

// Reopen is Open after a failure: the repository is checked again. With anew the remains of the
// repository are removed first, if possible: an incomplete repository is useless.
func (s *Store) Reopen(ctx context.Context, anew bool) error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.ready, s.empty = false, false
	if err := s.dial(ctx); err != nil {
		return err
	}
	if anew && (s.inClaim() || s.Plain()) {
		limited, stop := context.WithTimeout(ctx, askTimeout)
		defer stop()
		if err := s.erase(limited); err != nil && ctx.Err() == nil {
			return &Error{Sentence: err.Error()}
		}
	}
	return s.open(ctx, true)
}

func (s *Store) open(ctx context.Context, create bool) error {
	if s.ready {
		return nil
	}
	if err := s.dial(ctx); err != nil {
		return err
	}
	ctx, stop := context.WithTimeout(ctx, askTimeout)
	defer stop()
	if s.inClaim() {
		err := s.newPart(ctx)
		s.ready, s.empty = err == nil, err == nil
		return err
	}
	err := s.run(ctx, call{operation: checkRepository})
	if errors.Is(err, errNoRepository) && create {
		err = s.run(ctx, call{operation: initRepository})
		s.empty = err == nil
	}
	s.ready = err == nil
	return err
}

// dial checks that the store accepts connections. It is fast and its error is clear.
func (s *Store) dial(ctx context.Context) error {
	if s.inClaim() {
		return s.withClaim(ctx, dialTimeout, func(root *os.Root) error { _, err := root.Stat("."); return err })
	}
	limited, stop := context.WithTimeout(ctx, dialTimeout)
	defer stop()
	dialer := tls.Dialer{Config: s.tls()}
	conn, err := dialer.DialContext(limited, "tcp", s.Host())
	switch {
	case err == nil:
		return conn.Close()
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return outcomeError(checkRepository, -1, "it cannot be reached: "+err.Error(), false)
}

// Saved identifies what Save has put into the store.
type Saved struct {
	// Snapshot is its ID for Fetch, and Part the part of a repository in a claim.
	Snapshot, Part string
	// Bytes is how many bytes were transferred for it.
	Bytes int64
}

// Save saves files of a volume, whose relative paths are in list, each terminated by NUL. Files
// that vanish or cannot be read are left out. limit is in bytes a second.
func (s *Store) Save(ctx context.Context, volume string, list io.Reader, limit int64, output Output) (Saved, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	// Each call has a part of its own.
	if err := s.open(ctx, true); err != nil {
		return Saved{}, err
	}
	s.empty = false
	c := call{operation: backup, volume: volume, part: s.part, input: list, limit: limit, output: &output}
	err := s.run(ctx, c)
	if errors.Is(err, errLocked) {
		// An earlier restic of this move that was killed has left its lock: nobody else writes
		// here.
		if err = s.run(ctx, call{operation: unlock, part: s.part}); err == nil {
			err = &Error{Sentence: "it was locked by an earlier life of this mover"}
		}
	}
	if err == nil && output.summary.Snapshot == "" {
		err = &Error{Sentence: "restic saved nothing in it"}
	}
	return Saved{Snapshot: output.summary.Snapshot, Part: s.part, Bytes: output.summary.Packed}, err
}

// Fetch writes what was saved into a volume, over what is there. ErrFull means that the volume has
// no room, an *Error that the store cannot be used; a *Partial names files that were not written,
// and all others are.
func (s *Store) Fetch(ctx context.Context, volume string, saved Saved, limit int64, output Output) error {
	if !snapshotID.MatchString(saved.Snapshot) || s.inClaim() && !partName.MatchString(saved.Part) {
		return fmt.Errorf("the sender named %.80q, which is no snapshot", saved.Part+saved.Snapshot)
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.run(ctx, call{operation: restore, volume: volume, part: saved.Part, snapshot: saved.Snapshot, limit: limit, output: &output})
}

// Clear removes all that was saved; in an object store the repository itself stays.
func (s *Store) Clear(ctx context.Context) error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.empty {
		return nil
	}
	return s.clear(ctx)
}

// clear removes all snapshots, and data that belongs to none: a restic that was killed leaves such
// data.
func (s *Store) clear(ctx context.Context) error {
	if s.inClaim() {
		return s.erase(ctx)
	}
	err := s.run(ctx, call{operation: forget})
	if errors.Is(err, errLocked) {
		if err = s.run(ctx, call{operation: unlock}); err == nil {
			err = s.run(ctx, call{operation: forget})
		}
	}
	if err == nil {
		err = s.run(ctx, call{operation: prune})
	}
	s.empty = err == nil
	return err
}

// Remove removes all that the move has in the store, for good. Restic can remove what was saved,
// but not the repository itself: unless the store speaks the protocol of restic's REST server, its
// key and configuration stay, a few hundred bytes.
func (s *Store) Remove(ctx context.Context) error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	// Pods may wait for the end of this mover; they must not wait for a store that does not answer.
	if err := s.dial(ctx); err != nil {
		return err
	}
	if s.inClaim() || s.Plain() {
		return s.erase(ctx)
	}
	if s.empty {
		return nil
	}
	err := s.clear(ctx)
	if errors.Is(err, errNoRepository) {
		return nil
	}
	return err
}

// fileKinds are the kinds of a repository's files, in the order of their removal. The configuration
// is removed last: without it the remaining files are not recognized as a repository.
var fileKinds = []string{"locks", "snapshots", "index", "data", "keys"}

// repositoryFile is the form of the names of a repository's files, including those that a server
// has not completed.
var repositoryFile = regexp.MustCompile(`^[0-9a-f]{64}[.A-Za-z0-9-]*$`)

// maxList limits the list of the files of one kind, in bytes.
const maxList = 64 << 20

// erase removes a repository from a claim or a REST server.
func (s *Store) erase(ctx context.Context) error {
	s.ready, s.empty = false, false
	if s.inClaim() {
		err := s.withClaim(ctx, askTimeout, func(root *os.Root) error { return root.RemoveAll(s.Folder) })
		// No part exists until one is needed.
		s.empty = err == nil
		return err
	}
	transport := &http.Transport{TLSClientConfig: s.tls()}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	for _, kind := range fileKinds {
		var files []struct {
			Name string `json:"name"`
		}
		found, err := s.request(ctx, client, http.MethodGet, &files, kind+"/")
		if err != nil {
			return err
		}
		for i := 0; found && i < len(files); i++ {
			if !repositoryFile.MatchString(files[i].Name) {
				return fmt.Errorf("it lists %.80q, which is no file of a repository", files[i].Name)
			}
			if _, err := s.request(ctx, client, http.MethodDelete, nil, kind, files[i].Name); err != nil {
				return err
			}
		}
	}
	_, err := s.request(ctx, client, http.MethodDelete, nil, "config")
	return err
}

// tls returns the TLS configuration with the store's authority.
func (s *Store) tls() *tls.Config {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if len(s.Ticket.Authority) > 0 {
		config.RootCAs = x509.NewCertPool()
		config.RootCAs.AppendCertsFromPEM(s.Ticket.Authority)
	}
	return config
}

// request sends a request to a REST server about a file below the repository; false if it does not
// exist.
func (s *Store) request(ctx context.Context, client *http.Client, method string, into any, path ...string) (bool, error) {
	request, err := http.NewRequestWithContext(ctx, method, s.Address().JoinPath(path...).String(), nil)
	if err != nil {
		return false, fmt.Errorf("ask the object store: %w", err)
	}
	request.Header.Set("Accept", "application/vnd.x.restic.rest.v2")
	if user := s.Credentials["RESTIC_REST_USERNAME"]; user != "" {
		request.SetBasicAuth(user, s.Credentials["RESTIC_REST_PASSWORD"])
	}
	response, err := client.Do(request)
	if err != nil {
		return false, fmt.Errorf("remove what a move has in the object store: %w", err)
	}
	defer response.Body.Close()
	switch {
	case response.StatusCode == http.StatusNotFound:
		return false, nil
	case response.StatusCode != http.StatusOK:
		return false, fmt.Errorf("it answers %s", response.Status)
	case into == nil:
		return true, nil
	}
	if err := json.NewDecoder(io.LimitReader(response.Body, maxList)).Decode(into); err != nil {
		return false, fmt.Errorf("read its list: %w", err)
	}
	return true, nil
}

// operation is the purpose of a run of restic.
type operation string

const (
	checkRepository operation = "check"
	initRepository  operation = "init"
	backup          operation = "backup"
	restore         operation = "restore"
	forget          operation = "forget"
	prune           operation = "prune"
	unlock          operation = "unlock"
)

// call is one run of restic.
type call struct {
	operation        operation
	volume, snapshot string
	// part is the part of a repository in a claim.
	part  string
	input io.Reader
	// limit is in bytes a second; 0: none.
	limit  int64
	output *Output
}

// run runs restic once, until it and all processes that it started have ended. A restic that does
// nothing for too long is stopped.
func (s *Store) run(ctx context.Context, c call) error {
	if err := Installed(); err != nil {
		return err
	}
	if err := os.MkdirAll(s.Temporary, 0o700); err != nil {
		return fmt.Errorf("make a directory for restic: %w", err)
	}
	access := []sandbox.Access{{Path: program(), Execute: true}, {Path: s.Temporary, Write: true}}
	if s.Authority != "" {
		access = append(access, sandbox.Access{Path: s.Authority})
	}
	if c.volume != "" {
		access = append(access, sandbox.Access{Path: c.volume, Write: c.operation == restore})
	}
	var given []*os.File
	if s.inClaim() {
		directory, err := s.openPart(ctx, c.part)
		if err != nil {
			return err
		}
		defer directory.Close()
		given = []*os.File{directory}
		access = append(access, sandbox.Access{Path: partDescriptor, Write: c.operation != restore && c.operation != checkRepository})
	}
	if c.output == nil {
		c.output = &Output{}
	}
	caller := ctx
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	cmd := sandbox.Command(ctx, s.Self, access, program(), s.arguments(c)...)
	sandbox.SetProcessGroup(cmd)
	cmd.Dir, cmd.Env, cmd.Stdin, cmd.ExtraFiles = s.Temporary, s.environment(), c.input, given
	counts := &outputCounts{}
	cmd.Stderr = &lineWriter{line: c.output.stderrLine, counts: counts}
	if c.volume != "" {
		cmd.Dir = c.volume
	}
	cmd.Stdout = &lineWriter{line: c.output.stdoutLine, counts: counts}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start restic: %w", err)
	}
	var watching sync.WaitGroup
	watched, ended := context.WithCancel(ctx)
	watching.Go(func() {
		if err := s.waitUntilIdle(watched, cmd.Process.Pid, counts); err != nil {
			stop(err)
		}
	})
	code := sandbox.WaitForGroup(cmd)
	ended()
	watching.Wait()
	switch {
	case errors.Is(caller.Err(), context.DeadlineExceeded):
		return outcomeError(c.operation, code, strings.TrimSuffix("it does not answer: "+c.output.complaints(), ": "), false)
	case caller.Err() != nil:
		return caller.Err()
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	if err := claimError(code, c.output.complaints()); s.inClaim() && err != nil {
		return err
	}
	return outcomeError(c.operation, code, c.output.complaints(), c.output.ended)
}

// snapshotID is the form of the ID of a snapshot.
var snapshotID = regexp.MustCompile(`^[0-9a-f]{64}$`)

// commonArguments are the arguments of every run. Small packs need little memory, and little room
// in the temporary directory.
var commonArguments = []string{"--no-cache", "--json", "--pack-size=8", "--stuck-request-timeout=" + stuckTimeout.String()}

// operationArguments are the arguments of each operation. The end that fetches takes no lock:
// nothing is removed until it is done. Extended attributes are left to rsync, which knows which of
// them belong to the machine.
var operationArguments = map[operation][]string{
	checkRepository: {"cat", "config", "--no-lock"},
	initRepository:  {"init", "--repository-version=2"},
	backup:          {"backup", "--files-from-raw=-", "--force", "--no-scan", "--host=move", "--read-concurrency=2"},
	restore:         {"restore", "--no-lock", "--sparse", "--overwrite=always", "--exclude-xattr=*"},
	forget:          {"forget", "--unsafe-allow-remove-all", "--host=move"},
	prune:           {"prune", "--max-unused=0"},
	unlock:          {"unlock", "--remove-all"},
}

// arguments returns those of one run. Only the ID of a snapshot comes from the other end, and it
// was checked.
func (s *Store) arguments(c call) []string {
	args := slices.Concat(operationArguments[c.operation], commonArguments)
	if s.Authority != "" {
		args = append(args, "--cacert="+s.Authority)
	}
	if c.limit > 0 {
		// Restic's unit is KiB, and 0 means no limit.
		rate := strconv.FormatInt(max(1, c.limit>>10), 10)
		args = append(args, "--limit-upload="+rate, "--limit-download="+rate)
	}
	if c.operation == restore {
		args = append(args, "--target="+c.volume, "--", c.snapshot)
	}
	return args
}

// repository returns restic's name of the repository.
func (s *Store) repository() string {
	if s.inClaim() {
		return "local:" + partDescriptor
	}
	return s.URL
}

// memoryLimit is the memory that restic tries to stay below, in bytes.
const memoryLimit = 256 << 20

// environment returns restic's environment: the credentials of the store, and nothing of the
// mover's own.
func (s *Store) environment() []string {
	env := []string{
		"PATH=/usr/bin:/bin", "LC_ALL=C.UTF-8", "GOMAXPROCS=2", fmt.Sprintf("GOMEMLIMIT=%d", memoryLimit),
		"TMPDIR=" + s.Temporary, "RESTIC_PROGRESS_FPS=2",
		"RESTIC_REPOSITORY=" + s.repository(), "RESTIC_PASSWORD=" + s.Password,
	}
	for name, value := range s.Credentials {
		env = append(env, name+"="+value)
	}
	slices.Sort(env)
	return env
}

// program returns the path of restic.
func program() string {
	if path, err := exec.LookPath("restic"); err == nil {
		return path
	}
	return "/usr/bin/restic"
}
