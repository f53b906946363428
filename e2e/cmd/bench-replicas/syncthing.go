package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// peers are two instances of syncthing with one folder. They run from the first copy of a volume to its last, as syncthing is used:
// started anew they would look for changes before anybody asks.
type peers struct {
	*session
	// folder has their homes and the copy. Both answer to key.
	folder, key      string
	sender, receiver peer
}

// peer is an instance.
type peer struct{ home, device, listen, api string }

// syncthing has peers bring a copy up to date, until both have said so to each other. The first copy counts from their start. They
// carry content, permissions, times of files and symbolic links, but no owners, extended attributes, hard links or special files; each
// file is synced to the disk.
func (b *bench) syncthing(ctx context.Context, source, folder string) (cost, error) {
	if b.peers == nil || b.peers.folder != folder {
		b.stop()
		var err error
		if b.peers, err = newPeers(ctx, source, folder); err != nil {
			return cost{}, err
		}
	}
	before, unknown := b.peers.spent()
	if err := errors.Join(unknown, b.peers.sync()); err != nil {
		return cost{}, err
	}
	after, err := b.peers.spent()
	return cost{after.bytes - before.bytes, after.processor - before.processor, after.took - before.took}, err
}

// stop ends what runs from one measure to the next.
func (b *bench) stop() {
	if b.peers != nil {
		_, _ = b.peers.end(nil)
	}
	b.peers = nil
}

// newPeers writes keys and settings of peers, which start with their first sync.
func newPeers(ctx context.Context, source, folder string) (*peers, error) {
	target := filepath.Join(folder, "copy")
	at, err := free(4)
	if err != nil {
		return nil, err
	}
	sender, mine := newPeer(ctx, filepath.Join(folder, "sender"), at[:2])
	receiver, theirs := newPeer(ctx, filepath.Join(folder, "receiver"), at[2:])
	if err := errors.Join(mine, theirs, os.MkdirAll(target, 0o755)); err != nil {
		return nil, err
	}
	p := &peers{session: begin(ctx), folder: folder, key: rand.Text(), sender: sender, receiver: receiver}
	wire, err := p.counted(receiver.listen)
	err = errors.Join(err, p.configure(sender, source, "sendonly", receiver, "tcp://"+wire),
		p.configure(receiver, target, "receiveonly", sender, "dynamic"))
	if err != nil {
		_, err = p.end(err)
		return nil, err
	}
	return p, nil
}

// newPeer makes the home of an instance, with its keys.
func newPeer(ctx context.Context, home string, at []string) (peer, error) {
	err := exec.CommandContext(ctx, "syncthing", "generate", "--home="+home, "--no-default-folder", "--skip-port-probing").Run()
	if err != nil {
		return peer{}, fmt.Errorf("make keys of syncthing: %w", err)
	}
	device, err := exec.CommandContext(ctx, "syncthing", "serve", "--home="+home, "--device-id").Output()
	if err != nil {
		return peer{}, fmt.Errorf("read the keys of syncthing: %w", err)
	}
	return peer{home, strings.TrimSpace(string(device)), at[0], at[1]}, nil
}

// configure writes the settings of an instance that knows one other, and looks through its folder only when it is asked to. All of the
// folder marks that it is there, so nothing is written to the source. An address "dynamic" is one that it does not know.
func (p *peers) configure(one peer, path, kind string, other peer, address string) error {
	return write(filepath.Join(one.home, "config.xml"), fmt.Sprintf(`<configuration version="36">
<folder id="volume" path="%s" type="%s" rescanIntervalS="0" fsWatcherEnabled="false">
<device id="%s"></device><markerName>.</markerName>
</folder>
<device id="%[3]s"><address>%s</address></device>
<gui enabled="true" tls="false"><address>%s</address><apikey>%s</apikey></gui>
<options>
<listenAddress>tcp://%s</listenAddress>
<globalAnnounceEnabled>false</globalAnnounceEnabled>
<localAnnounceEnabled>false</localAnnounceEnabled>
<relaysEnabled>false</relaysEnabled>
<natEnabled>false</natEnabled>
<urAccepted>-1</urAccepted>
<autoUpgradeIntervalH>0</autoUpgradeIntervalH>
<crashReportingEnabled>false</crashReportingEnabled>
<startBrowser>false</startBrowser>
<setLowPriority>false</setLowPriority>
</options>
</configuration>
`, path, kind, other.device, address, one.api, p.key, one.listen))
}

// start starts both, and waits until they have opened the folder. As if another syncthing watched it, each does all in a process of its
// own.
func (p *peers) start() error {
	ctx, stop := context.WithTimeout(p.ctx, time.Minute)
	defer stop()
	for _, one := range []peer{p.receiver, p.sender} {
		if err := p.serve(one.api, []string{"STMONITORED=yes"}, "syncthing", "serve", "--home="+one.home); err != nil {
			return err
		}
		for {
			err := p.ask(ctx, http.MethodGet, one, "completion?folder=volume", nil)
			if err == nil {
				break
			}
			if ctx.Err() != nil {
				return err
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
	return nil
}

// sync has the sender look for changes, and waits until the receiver knows of all and needs none, and the sender knows that.
func (p *peers) sync() error {
	if len(p.servers) == 0 {
		if err := p.start(); err != nil {
			return err
		}
	}
	ctx, stop := context.WithTimeout(p.ctx, time.Hour)
	defer stop()
	if err := p.ask(ctx, http.MethodPost, p.sender, "scan?folder=volume", nil); err != nil {
		return err
	}
	// What each knows of itself and of the other: changes are numbered. The order is that in which they travel.
	views := []struct {
		of     peer
		device string
	}{{p.sender, ""}, {p.receiver, p.sender.device}, {p.receiver, ""}, {p.sender, p.receiver.device}}
	for {
		var found [4]struct{ Sequence, NeedItems, NeedDeletes int64 }
		for i, view := range views {
			err := p.ask(ctx, http.MethodGet, view.of, "completion?folder=volume&device="+view.device, &found[i])
			if err != nil {
				return err
			}
		}
		sent, seen, has, known := found[0], found[1], found[2], found[3]
		if seen.Sequence >= sent.Sequence && has.NeedItems+has.NeedDeletes == 0 && known.Sequence >= has.Sequence {
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// ask calls an instance's interface to its database.
func (p *peers) ask(ctx context.Context, method string, one peer, call string, answer any) error {
	request, err := http.NewRequestWithContext(ctx, method, "http://"+one.api+"/rest/db/"+call, nil)
	if err != nil {
		return fmt.Errorf("ask syncthing: %w", err)
	}
	request.Header.Set("X-API-Key", p.key)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("ask syncthing: %w", err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %.500s", response.Status, body)
	}
	if err == nil && answer != nil {
		err = json.Unmarshal(body, answer)
	}
	if err != nil {
		return fmt.Errorf("ask syncthing for %s: %w", call, err)
	}
	return nil
}

// spent is what the session has cost so far, of programs that still run.
func (s *session) spent() (cost, error) {
	c := cost{took: time.Since(s.began)}
	for _, wire := range s.wires {
		c.bytes += wire.Bytes()
	}
	for _, server := range s.servers {
		content, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", server.Process.Pid))
		if err != nil {
			return c, fmt.Errorf("read the processor time of a program: %w", err)
		}
		// The name, in parentheses, may hold anything. Times in user and kernel mode are the 12th and 13th field after it, in 1/100 s.
		fields := strings.Fields(string(content[bytes.LastIndexByte(content, ')')+1:]))
		for _, field := range fields[11:13] {
			ticks, _ := strconv.ParseInt(field, 10, 64)
			c.processor += time.Duration(ticks) * 10 * time.Millisecond
		}
	}
	return c, nil
}
