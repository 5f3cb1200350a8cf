# pdu.pl DIR roots|serve
#
# The pass_persist program of a net-snmp snmpd that stands in for a PDU; needs perl-base only.
# It serves the columns that models.tsv has for the model named in DIR/model. Outlets are lines
# "NUMBER<TAB>STATE<TAB>NAME" in DIR/outlets. Each SET is a line in DIR/calls and, after
# the command in DIR/power (if any) has exited with 0, changes that file.
# DIR/mode, if it is there, holds a fault:
#   stuck     accept SETs, change nothing
#   fail      refuse SETs
#   failobey  answer SETs with an error, and obey
#   lag S     accept at once, change S seconds later, as most PDUs do
#   slow S    answer each SET after S seconds
#   noindex   serve no rows
#   show W    show the word W, whatever the state is
#   shift N   serve outlet 1 as 1+N, outlet 2 as 2+N, and so on
use strict;
use warnings;
use Fcntl ":flock";
my ($dir, $what) = @ARGV;
$| = 1;

sub slurp {
    open(my $f, '<', $_[0]) or return '';
    local $/;
    my $s = <$f> // '';
    $s =~ s/\s+$//;
    return $s;
}

my $model = slurp("$dir/model");
my @columns;
for (split /\n/, slurp("$dir/models.tsv")) {
    next if /^#/ || !length;
    my ($m, undef, $kind, $oid, $values, $index) = split /\t/;
    next unless $m eq $model;
    my %v = map { split /=/ } split /,/, ($values // '');
    push @columns, { kind => $kind, oid => $oid, v => \%v, index => (defined $index && length $index) ? $index : '%d' };
}

if ($what eq 'roots') {
    my %all;
    for (@columns) { my $o = $_->{oid}; $o =~ s/\.\d+$//; $all{$o} = 1 }
    my @roots;    # without those below another one
    for my $o (sort { length $a <=> length $b } keys %all) {
        push @roots, $o unless grep { index("$o.", "$_.") == 0 } @roots;
    }
    print ".$_\n" for @roots;
    exit 0;
}

sub mode { return slurp("$dir/mode") }
sub wait_for { select(undef, undef, undef, $_[0]) }

sub change {
    my ($n, $state) = @_;
    my $power = slurp("$dir/power");
    if (length $power && system("$power $n $state >>'$dir/power.log' 2>&1") != 0) { return 0 }
    open(my $lock, '>>', "$dir/lock") or return 0;    # the test edits the outlets too
    flock($lock, LOCK_EX) or return 0;
    my $out = '';
    for (split /\n/, slurp("$dir/outlets")) {
        my @f = split /\t/;
        $f[1] = $state eq 'off' ? 'off' : 'on' if $f[0] == $n;
        $out .= join("\t", @f) . "\n";
    }
    open(my $f, '>', "$dir/outlets.new") or return 0;
    print $f $out;
    close $f or return 0;
    return rename "$dir/outlets.new", "$dir/outlets";
}

sub rows {
    my $mode = mode();
    my %t;
    return %t if $mode eq 'noindex';
    my $show = $mode =~ /^show (\S+)/ ? $1 : undef;
    my $shift = $mode =~ /^shift (-?\d+)/ ? $1 : 0;
    for (split /\n/, slurp("$dir/outlets")) {
        my ($n, $state, $name) = split /\t/;
        for my $c (@columns) {
            my $index = $c->{index};
            $index =~ s/%d([+-]\d+)?/$n + $shift + ($1 \/\/ 0)/e;
            my $v;
            if ($c->{kind} eq 'name') { $v = ['string', $name] }
            elsif ($c->{kind} eq 'id') { $v = ['string', "AA$n"] }
            else {
                my $word = $c->{kind} eq 'control' && exists $c->{v}{idle} ? 'idle' : $show // $state;
                $v = ['integer', $c->{v}{$word}];
            }
            next unless defined $v->[1];
            $t{".$c->{oid}.$index"} = [@$v, $c, $n];
        }
    }
    return %t;
}

sub by_oid {
    my @a = split /\./, $_[0];
    my @b = split /\./, $_[1];
    while (@a && @b) { my ($x, $y) = (shift(@a) || 0, shift(@b) || 0); return $x <=> $y if $x != $y }
    return @a <=> @b;
}

sub set {
    my ($oid, $type, $value) = @_;
    my %t = rows();
    my $row = $t{$oid} or return 'no-creation';
    my ($c, $n) = @{$row}[2, 3];
    return 'not-writable' if $c->{kind} ne 'control';
    return 'wrong-type' if $type !~ /^(integer|gauge|unsigned)/i;
    my ($action) = grep { $_ ne 'idle' && $c->{v}{$_} eq $value } sort keys %{ $c->{v} };
    return 'wrong-value' if !defined $action;
    if (open(my $f, '>>', "$dir/calls")) { print $f "$n $action\n"; close $f }
    my $mode = mode();
    return 'commit-failed' if $mode eq 'fail';
    return 'DONE' if $mode eq 'stuck';
    if ($mode =~ /^lag ([\d.]+)/) {
        my $lag = $1;
        my $pid = fork;
        if (defined $pid && $pid == 0) {
            open STDIN, '<', '/dev/null';
            open STDOUT, '>', '/dev/null';
            wait_for($lag);
            change($n, $action);
            require POSIX;
            POSIX::_exit(0);
        }
        return 'DONE';
    }
    wait_for($1) if $mode =~ /^slow ([\d.]+)/;
    my $done = change($n, $action);
    return $done && $mode ne 'failobey' ? 'DONE' : 'commit-failed';
}

while (my $line = <STDIN>) {
    chomp $line;
    next if $line eq '';    # snmpd sends one behind each SET; the end is the end of file
    if ($line eq 'PING') { print "PONG\n"; next }
    my $oid = <STDIN> // exit 0;
    chomp $oid;
    if ($line eq 'get') {
        my %t = rows();
        my $row = $t{$oid};
        print $row ? "$oid\n$row->[0]\n$row->[1]\n" : "NONE\n";
    } elsif ($line eq 'getnext') {
        my %t = rows();
        my ($next) = sort { by_oid($a, $b) } grep { by_oid($_, $oid) > 0 } keys %t;
        print defined $next ? "$next\n$t{$next}[0]\n$t{$next}[1]\n" : "NONE\n";
    } elsif ($line eq 'set') {
        my $typed = <STDIN> // exit 0;
        chomp $typed;
        my ($type, $value) = split ' ', $typed, 2;
        print set($oid, $type, $value), "\n";
    }
}
