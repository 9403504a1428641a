"""Words of German and English that tell whether a point behind them, or before them, ends a sentence.

Sources of the abbreviations: Unicode's CLDR (common/segments, "suppressions"), pragmatic-segmenter and Duden, without
what is more often a word ("Alt.", "Link.", "Test.").  They are in lower case and without their last point.
"""


def _words(words: str) -> frozenset[str]:
    return frozenset(words.split())


# The sentence always goes on behind them, whatever follows.
NEVER_LAST = {
    "de": _words(
        """
        abzgl allg ausschl dr prof hr hrn beil betr bez bzgl bzw ca dgl.z d.h d.i einschl entspr etw evt evtl exkl ggf
        ggfs gem i.d.r i.e inkl insb insbes lt m.e m.w mind möbl näml o.g resp sog sogen spez s.g tägl u.u ugs urspr
        ursprüngl v.a vgl vs wg z.b z.hd z.t z.zt zw zuzügl zzgl zzt
        """
    ),
    "en": _words(
        """
        approx ca cf e.g esp excl i.e incl resp viz vs capt cmdr dr gov hon lt messrs mlle mme mr mrs ms msgr prof rev
        sgt
        """
    ),
}

# The sentence goes on behind them unless the next word is one that begins sentences.
ABBREVIATIONS = {
    "de": _words(
        """
        a.a.o a.d abb abk abs abschn abt abw adj adr adv ahd akad amtl angekl angest anl anm ao app apr arch aufl aug
        ausg bd bde begr beisp bem ber bes best bevollm bezgl bibl biogr bl bln br bspw bsp buchst bv chin chr co corp
        dat dept desgl dez dgl dim dipl doz dr dt dtzd durchschn e.v ehem eidg eigtl einh em empf engl erf erg erl erw
        esq etc ev exempl exz f fa fam feb febr ff fig fl forts fr frankr frl frz geb gebr gedr geg gegr gek gen ges
        gesch geschl gest gez ggb griech habil hbf hd hdb hl hon hr hrn hrsg hg hptm hptst i.a i.v inc ing inh inst
        int ital jahrh jan jap jew jg jgg jh jhdt jhrl jr jul jun kap kath kfm kgl kl komp konv kop kpl landw lat led
        lfd lfg lic lit lnr ltd ltg maj masch math max med mfg mhd min mio mitgl mod mrd mr mrs ms msgr mst mtl mwst
        nachf nachm nd nds no nördl nov nr o.ä obb obj od okt op orth österr pat pfd pf phil philos phys pl pol port
        priv proz prof prot psych qu rd rdnr red reg rel rep rez röm rn russ s.a s.o s.u sek sen sep sept schles schr
        schw schwäb schweiz span spezif spr st staatl std stdn stellv stk str stud südd tab techn tel temp theol tsd
        u.a u.ä u.dgl u.v.a u.v.m übers übl uff univ usf usw v.chr n.chr verb verf verh verl vers verw vet viell vol
        vorm vors wwe zit ztr
        """
    ),
    "en": _words(
        """
        abbr acad acct addr adj adm admin adv al alt apt arr assn assoc asst attn attrib aug auth ave avg bc bdrm bibl
        bldg blvd bros btw cap capt cent cert chap chron cmdr co comm comp conf cont contd corp cpl cres ct cu dec def
        deg dept diag diam dict dist div doc doz dr drs ea eccl econ ed edn eds enc encl eng engr eq eqn eqs esq est
        etc ext feb fed ff fl fn freq ft fwd fwy gal gaz geog geom gov govt gram hist hon hosp hr hrs hwy illus inc
        ing inst instr intl introd jan jr jul jun kg lab lang lat lb lbs lib lic lieut lit lt ltd maj manuf max mech
        med messrs mfg mgmt mgr min mins misc mlle mme mod mph mr mrs ms msgr mt mtn mts natl nov num obs occas oct
        orch org orig oz pfc ph phil photog phys pkg pl pls pref prelim prep pres prob proc prof prop prov pseud psych
        pt pts pub publ pvt qt qtr qty quot rd recd rect ref refs rel repr rept rev rm rpt rt rte sch sched sci sen
        sens sep sept ser sfc sgt soc spec sq sr st stat std ste suppl supt surg tbsp tech tel temp terr tr trans
        transl treas tsp univ vac vb ver vet vocab vol vols wk yd yds yr yrs a.d a.k.a a.s.a.p b.a b.c b.sc d.c e.u
        m.a m.d m.sc p.o p.s ph.d r.s.v.p u.k u.n u.s u.s.a
        """
    ),
}

# They close a list: the sentence ends before any capital.
CLOSE_LISTS = _words("etc o.ä u.ä u.dgl u.s.w u.v.m usf usw")

# As those, but only in this case: other words, or words of German, are written in the same letters.
CAPITALISED = {
    "de": _words("Di Do Fr Mag Mi Min Mo Sa So"),
    "en": _words("Col Fr Fri Gen Mar Mon Rep Sat Sec Sun Thu Thur Thurs Tue Tues Wed"),
}

# Abbreviations where a number, a Roman one or a letter follows; else words, or a sentence of their own ("No.").
NUMBERED = {
    "de": _words("art"),
    "en": _words(
        "abs app appx art arts bk c ch chs col cols ex exs fig figs no nos op p para paras pp sec secs tab vs"
    ),
}

MONTHS = {
    "de": _words(
        """
        Januar Jänner Jan Februar Feber Feb Febr März Mrz April Apr Mai Juni Jun Juli Jul August Aug September Sep
        Sept Oktober Okt November Nov Dezember Dez
        """
    ),
    "en": _words(
        """
        January Jan February Feb March Mar April Apr May June Jun July Jul August Aug September Sep Sept October Oct
        November Nov December Dec
        """
    ),
}

# What follows a time of day in its sentence ("8 p.m. Saturday").
AFTER_TIMES = _words(
    """
    Monday Tuesday Wednesday Thursday Friday Saturday Sunday Mon Tue Tues Wed Thu Thur Thurs Fri Sat Sun Eastern
    Central Mountain Pacific Atlantic Greenwich GMT UTC EST EDT CST CDT MST MDT PST PDT CET CEST BST IST
    """
)

# Words that begin sentences and, in upper case, hardly anything else: no names, no nouns.
STARTERS = {
    "de": _words(
        """
        ab aber alle alles allerdings als also am an andere anschließend auch auf aus außer außerdem bald bei beide
        beim bevor bis bitte da dabei dadurch dafür dagegen daher dahin damals damit danach dann daran darauf daraus
        darum darüber darunter das dass davon davor dazu dein deine deinen deiner dem den denn dennoch der deren des
        deshalb dessen deswegen die dies diese diesem diesen dieser dieses doch dort drei du durch ebenso eigentlich
        ein eine einem einen einer eines einige einmal endlich entweder er erst es etwas euer eure falls fast fünf für
        ganz gar gegen genau gestern gibt gleich habe haben hat hatte hatten hast heute hier hinter ich ihm ihn ihnen
        ihr ihre ihren ihrer im immer in ins inzwischen irgendwann ist ja jede jeder jedes jedoch jemand jene jetzt
        kann kein keine keiner keines können kommt komm lass leider letztlich man manche manchmal mehr mein meine
        meinem meinen meiner mit möchte möchten muss müssen nach nachdem nachher natürlich neben nein nicht nichts nie
        niemand noch nun nur ob obwohl oder oft ohne plötzlich schade schließlich schon sehr sein seine seinem seinen
        seiner seit seitdem sich sie sieben sind so sobald sofort sogar solange solche soll sollte sollten sondern
        sonst später sowie trotz trotzdem über überall übrigens um und uns unser unsere unserem unseren unserer unter
        viele vielen vielleicht vier vom von vor vorher während wann war waren warum was wegen weil weiter weitere
        welche welcher welches wem wen wenn wer werden wessen weshalb wie wieder wieso wieviel will wir wird wirklich
        wo wobei wodurch wofür woher wohin womit wurde wurden zehn zu zudem zuerst zuletzt zum zunächst zur zusammen
        zwar zwei zwischen zwölf acht neun sechs elf danke erstens zweitens drittens viertens obgleich sooft sodass
        hallo achtung ebenfalls abends morgens mittags nachts gern gerne genauso selbst dieselbe derselbe jahrelang
        wahrscheinlich vermutlich offenbar möglicherweise hoffentlich
        """
    ),
    "en": _words(
        """
        a about above according actually after afterwards again ago all almost along already also although always am
        among an and another any anybody anyone anything apparently are as ask at away be because before behind below
        beside besides between both but by call can cannot come could despite did do does don't during each either
        else even eventually every everybody everyone everything except few finally first following for fortunately
        four from further furthermore get give go had has have he hence her here hers herself him himself his how
        however i if in indeed instead into is isn't it its itself just last later least leave let like look make many
        may maybe me meanwhile might mine more moreover most much must my myself nearly neither never nevertheless
        next no nobody none nonetheless nor not nothing now nowadays of often oh okay on once one only or other others
        otherwise our ours outside over perhaps please put quite rather really recently see seven several shall she
        should shouldn't show similarly since six so some somebody someone something sometimes somewhere soon still
        such suddenly surely take ten than thank thanks that the their theirs them then there therefore these they
        thirdly this those though three through throughout thus till to today together tomorrow too toward towards
        tonight twelve twice two under unfortunately unless unlike until up upon us use usually very wait was we well
        were what whatever when whenever where whereas wherever whether which while who whoever whole whom whose why
        will with within without won't would wouldn't yes yesterday yet you your yours yourself five eight nine eleven
        secondly firstly
        """
    ),
}

# Before a number with a point they say that it is an ordinal one ("die 2. Auflage"); forms of "ein", "mein" and
# "kein" are found by their stems.
BEFORE_ORDINALS = _words(
    """
    ab als am ans bis beim das dem den der des die im in ins jede jedem jeden jeder jedes oder per seit sowie und vom
    zu zum zur dieser dieses diesem diesen diese jener jenes jenem jenen jene alle welche welcher welches kommenden
    letzten nächsten bereits schon pro je nach vor mit
    """
)
ARTICLE_STEMS = ("ein", "kein", "mein", "dein", "sein", "ihr", "unser", "unsr", "euer", "eur", "dies", "jed", "jen")

# Short words that people who write without capitals end sentences with; other ones of three letters are abbreviations.
SHORT_WORDS = _words(
    """
    ab am an auf aus da das du er es gut hat ich ihm ihn im in ist ja man mit nie nun nur ob rot so tag tod tun um uns
    vor wer wie wir wo zu zug all and any are as at bad be bed big boy but by can car cat cup cut day dog eat end far
    few for fun get go got guy had has he her him his hot how if in is it job key law let lot man map may me men my
    new no not now of off oh ok old on one or our out own pay put red run sad say sea see she sit six so sun tea ten
    the tie to too top try two up us use war was way we who why win yes yet you
    """
)

# Words without a vowel that are no abbreviations: units, interjections and what is spelled.
WORDS_WITHOUT_VOWELS = _words(
    """
    mm cm dm km mg kg ml cl dl hl kw kwh kb mb gb tb hz khz mhz ghz db px hm hmm mhm pst psst brr pfft shh grr http
    https html xml css php sql pdf sms
    """
)
